//! What a program hands to `cuModuleLoadData`: PTX text, an uncompressed cubin, or a fat binary.
//!
//! PTX and cubins say which kernels and variables they hold. A fat binary is compressed as a rule: its names are
//! accepted as the program gives them, and its variables have to be defined by `simgpuModuleGlobal` (our own
//! runtime does, from what `__cudaRegisterVar` tells it).

use crate::code::{Answer, Code};
use crate::gate::{Host, In, Text};
use crate::ptx;

/// First word of a fat binary.
const FATBIN: u32 = 0xBA55_ED50;
/// First word of the record that points to a fat binary (`__fatBinC_Wrapper_t` in fatbinary_section.h).
const FATBIN_WRAPPER: u32 = 0x4662_43B1;
/// First bytes of an ELF file.
const ELF: u32 = u32::from_le_bytes(*b"\x7fELF");

/// The names in an image.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Image {
    /// Names of kernels.
    pub(crate) kernels: Vec<String>,
    /// Names and bytes of variables.
    pub(crate) globals: Vec<(String, u64)>,
    /// The architecture it was written for, if it says so.
    pub(crate) compute: Option<(i32, i32)>,
    /// Whether a kernel that is not listed exists all the same.
    pub(crate) open: bool,
}

/// Reads the image at an address that a program passed.
pub(crate) fn at(address: Host) -> Answer<Image> {
    if address.0.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let bytes = Bytes(address);
    match bytes.u32(0) {
        FATBIN | FATBIN_WRAPPER => Ok(Image {
            open: true,
            ..Image::default()
        }),
        ELF => cubin(bytes).ok_or(Code::INVALID_IMAGE),
        _ => {
            let text = bytes.text(0).map_err(|_| Code::INVALID_IMAGE)?;
            ptx::parse(text).map_err(|_| Code::INVALID_PTX)
        }
    }
}

/// Reads an image file. A file is copied with a zero byte behind it, so that text ends.
pub(crate) fn file(path: &str) -> Answer<Image> {
    let mut bytes = std::fs::read(path).map_err(|_| Code::FILE_NOT_FOUND)?;
    if bytes.len() < 64 {
        bytes.resize(64, 0);
    }
    bytes.push(0);
    at(Host::from_address(bytes.as_ptr().expose_provenance() as u64))
}

/// An image in the program's memory. It says its own length only as it is read.
#[derive(Clone, Copy)]
struct Bytes(Host);

impl Bytes {
    fn read<T: Copy>(self, offset: u64) -> Option<T> {
        let place = Host::from_address(self.0.address().checked_add(offset)?);
        In::<T>::of(place).get().ok()
    }

    fn u16(self, offset: u64) -> u64 {
        self.read::<u16>(offset).map_or(0, u64::from)
    }

    fn u32(self, offset: u64) -> u32 {
        self.read::<u32>(offset).unwrap_or(0)
    }

    fn u64(self, offset: u64) -> u64 {
        self.read::<u64>(offset).unwrap_or(0)
    }

    fn text<'a>(self, offset: u64) -> Answer<&'a str> {
        Text::of(Host::from_address(self.0.address() + offset)).get()
    }
}

/// The symbols of a cubin: functions are kernels, objects are variables (ELF-64, gABI chapter 4).
fn cubin(bytes: Bytes) -> Option<Image> {
    const SHT_SYMTAB: u32 = 2;
    const STT_OBJECT: u8 = 1;
    const STT_FUNC: u8 = 2;
    const EM_CUDA: u64 = 190;
    let is_64_bit = bytes.read::<u8>(4)? == 2;
    if !is_64_bit || bytes.u16(18) != EM_CUDA {
        return None;
    }
    let (sections, size, count) = (bytes.u64(40), bytes.u16(58), bytes.u16(60));
    let mut image = Image::default();
    for section in (0..count).map(|index| sections + index * size) {
        if bytes.u32(section + 4) != SHT_SYMTAB {
            continue;
        }
        let (symbols, length, strings) = (
            bytes.u64(section + 24),
            bytes.u64(section + 32),
            bytes.u32(section + 40),
        );
        let names = bytes.u64(sections + u64::from(strings) * size + 24);
        for symbol in (0..length / 24).map(|index| symbols + index * 24) {
            let kind = bytes.read::<u8>(symbol + 4)? & 15;
            let defined = bytes.u16(symbol + 6) != 0;
            let name = bytes.text(names + u64::from(bytes.u32(symbol))).ok()?;
            match kind {
                STT_FUNC if defined => image.kernels.push(name.to_owned()),
                STT_OBJECT if defined => image.globals.push((name.to_owned(), bytes.u64(symbol + 16))),
                _ => {}
            }
        }
    }
    Some(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(bytes: &[u8]) -> Host {
        Host::from_address(bytes.as_ptr().expose_provenance() as u64)
    }

    #[test]
    fn a_fat_binary_takes_any_name() {
        let bytes = FATBIN.to_le_bytes();
        assert!(at(address(&bytes)).unwrap().open);
        let bytes = FATBIN_WRAPPER.to_le_bytes();
        assert!(at(address(&bytes)).unwrap().open);
    }

    #[test]
    fn text_that_is_no_ptx_bytes_that_are_no_image_and_null_have_their_own_codes() {
        assert_eq!(at(address(b"nonsense\0")).unwrap_err(), Code::INVALID_PTX);
        assert_eq!(
            at(address(b"\xff\xfe\xfd\xfc\0")).unwrap_err(),
            Code::INVALID_IMAGE
        );
        assert_eq!(at(Host(std::ptr::null_mut())).unwrap_err(), Code::INVALID_VALUE);
        assert_eq!(file("/nonexistent").unwrap_err(), Code::FILE_NOT_FOUND);
    }

    #[test]
    fn an_elf_file_of_another_machine_is_an_invalid_image() {
        let mut bytes = vec![0; 64];
        bytes[..5].copy_from_slice(b"\x7fELF\x02");
        bytes[18] = 62;
        assert_eq!(at(address(&bytes)).unwrap_err(), Code::INVALID_IMAGE);
    }

    #[test]
    fn the_symbols_of_a_cubin_are_its_kernels_and_variables() {
        // Header, symbols (null, function, object, undefined function), names, three section headers.
        let names = b"\0kernel\0table\0gone\0";
        let symbol = |name: u32, kind: u8, section: u16, size: u64| {
            let mut bytes = name.to_le_bytes().to_vec();
            bytes.extend([kind, 0]);
            bytes.extend(section.to_le_bytes());
            bytes.extend(0_u64.to_le_bytes());
            bytes.extend(size.to_le_bytes());
            bytes
        };
        let symbols = [
            symbol(0, 0, 0, 0),
            symbol(1, 0x12, 3, 128),
            symbol(8, 0x11, 4, 400),
            symbol(14, 0x12, 0, 0),
        ]
        .concat();
        let mut file = vec![0_u8; 64];
        file.splice(..6, *b"\x7fELF\x02\x01");
        file.splice(18..20, 190_u16.to_le_bytes());
        file.extend(&symbols);
        let names_at = file.len() as u64;
        file.extend(names);
        let sections_at = file.len() as u64;
        for (kind, offset, size, link) in [
            (0_u32, 0, 0, 0_u32),
            (2, 64, symbols.len() as u64, 2),
            (3, names_at, names.len() as u64, 0),
        ] {
            let mut header = vec![0_u8; 64];
            header.splice(4..8, kind.to_le_bytes());
            header.splice(24..32, offset.to_le_bytes());
            header.splice(32..40, size.to_le_bytes());
            header.splice(40..44, link.to_le_bytes());
            file.extend(header);
        }
        file.splice(40..48, sections_at.to_le_bytes());
        file.splice(58..60, 64_u16.to_le_bytes());
        file.splice(60..62, 3_u16.to_le_bytes());
        let image = at(address(&file)).unwrap();
        assert_eq!(image.kernels, ["kernel"]);
        assert_eq!(image.globals, [("table".to_owned(), 400)]);
        assert!(!image.open);
    }
}
