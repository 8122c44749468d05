//! UUIDs: version 5 (SHA-1 of a namespace and a name), as the driver's are.

/// The namespace that all names here are in. Drawn once; means nothing.
const NAMESPACE: [u8; 16] = [
    0x9f, 0x1c, 0x1d, 0x0b, 0x52, 0x3e, 0x4c, 0x6a, 0x8f, 0x70, 0x5d, 0x61, 0xb4, 0x0e, 0x2a, 0x37,
];

/// The UUID of GPU `index` of a state.
pub(crate) fn gpu_uuid(state: &str, index: u32) -> [u8; 16] {
    version5(&[b"gpu", state.as_bytes(), &index.to_be_bytes()])
}

/// The UUID of a MIG device: of its GPU, the GPU instance id and the graphics engine ("syspipe") that its compute
/// instance got. Nothing of it is a time or a count, so it comes back when the same place is filled again, also
/// by another profile: so it is with the real driver.
pub(crate) fn mig_uuid(gpu: [u8; 16], gi: u32, syspipe: u32) -> [u8; 16] {
    version5(&[b"mig", &gpu, &gi.to_be_bytes(), &syspipe.to_be_bytes()])
}

/// The usual text form.
#[must_use]
pub fn uuid_text(uuid: [u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (a, b, c, d, e) = (&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]);
    format!("{}-{}-{}-{}-{}", hex(a), hex(b), hex(c), hex(d), hex(e))
}

fn version5(parts: &[&[u8]]) -> [u8; 16] {
    let name = parts.iter().fold(NAMESPACE.to_vec(), |mut name, part| {
        name.extend_from_slice(part);
        name
    });
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&sha1(&name)[..16]);
    uuid[6] = (uuid[6] & 0x0f) | 0x50;
    uuid[8] = (uuid[8] & 0x3f) | 0x80;
    uuid
}

/// SHA-1, FIPS 180-4.
fn sha1(message: &[u8]) -> [u8; 20] {
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if padded.len() - message.len() < 9 {
        padded.resize(padded.len() + 64, 0);
    }
    let end = padded.len() - 8;
    padded[end..].copy_from_slice(&(message.len() as u64 * 8).to_be_bytes());

    let mut hash: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded.as_chunks::<64>().0 {
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        for t in 16..80 {
            words[t] = (words[t - 3] ^ words[t - 8] ^ words[t - 14] ^ words[t - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = hash;
        for (t, word) in words.iter().enumerate() {
            let (mix, constant) = match t {
                0..20 => ((b & c) | (!b & d), 0x5a82_7999),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let next = a
                .rotate_left(5)
                .wrapping_add(mix)
                .wrapping_add(e)
                .wrapping_add(constant)
                .wrapping_add(*word);
            (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
        }
        for (sum, part) in hash.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(part);
        }
    }
    let mut digest = [0; 20];
    for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(hash) {
        *bytes = word.to_be_bytes();
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn sha1_of_the_standards_examples() {
        assert_eq!(hex(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(&sha1(b"")), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(&sha1(two_blocks)), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(
            hex(&sha1(&[b'a'; 64])),
            "0098ba824b5c16427bd7a1122a5a442a25ec644d"
        );
    }

    #[test]
    fn uuids_are_of_version_5_and_differ() {
        let gpu = gpu_uuid("x", 0);
        let text = uuid_text(mig_uuid(gpu, 1, 0));
        assert_eq!(text.len(), 36);
        assert_eq!(&text[14..15], "5");
        assert!(["8", "9", "a", "b"].contains(&&text[19..20]), "{text}");
        assert_ne!(mig_uuid(gpu, 1, 0), mig_uuid(gpu, 1, 1));
        assert_ne!(mig_uuid(gpu, 1, 0), mig_uuid(gpu, 2, 0));
        assert_ne!(gpu, gpu_uuid("x", 1));
    }
}
