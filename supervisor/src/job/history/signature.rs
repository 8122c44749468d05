//! Which program this is, told from all others by what decides on its memory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Variables that change how much device memory a program takes: allocators and their settings, how much a
/// framework takes at the start, how modules are loaded, how many processes share the work, and the Python
/// environment that the libraries come from.
pub const ENVIRONMENT: &[&str] = &[
    "CONDA_PREFIX",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_MODULE_LOADING",
    "LOCAL_WORLD_SIZE",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TF_CUDNN_WORKSPACE_LIMIT_IN_MB",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "VIRTUAL_ENV",
    "WORLD_SIZE",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
];

/// A text file up to this size that an argument names is read as the program's script, bytes.
const SCRIPT: u64 = 1 << 20;
/// Of a larger file so much of its start and of its end is read: an ELF file has its build id and its symbols
/// there.
const PROBE: usize = 64 << 10;
/// Words beyond so many bytes are not kept as they are, only told apart.
const KEPT_WORDS: usize = 4 << 10;
/// So many numbers at most are told apart from the words.
const KEPT_NUMBERS: usize = 256;

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// Path of the executable, symbolic links resolved.
    pub program: String,
    /// The arguments, numbers in them replaced by `#`; a script by its path. First how the executable was
    /// found, where that is by a link: in a Python environment the link is what decides on the libraries.
    pub words: Vec<String>,
    /// What is set of [`ENVIRONMENT`], in that order.
    pub environment: Vec<(String, String)>,
    /// The numbers that stood in the arguments, in order.
    pub numbers: Vec<f64>,
    /// The content of the executable and of the script, as hexadecimal digits.
    pub content: String,
}

impl Signature {
    /// Of a command as it would be started here; `None` where there is no such program.
    #[must_use]
    pub fn of(command: &[OsString], given: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let (first, arguments) = command.split_first()?;
        let found = std::path::absolute(find(first, given("PATH").as_deref())?).ok()?;
        let program = found.canonicalize().ok()?;
        let mut content = Sha256::new();
        probe(&program, &mut content)?;
        let mut words = Vec::new();
        if found != program {
            words.push(found.display().to_string());
        }
        let mut numbers = Vec::new();
        let mut has_script = false;
        for argument in arguments {
            let script = if has_script { None } else { script_at(argument) };
            if let Some(path) = script {
                has_script = true;
                probe(&path, &mut content)?;
                words.push(path.display().to_string());
            } else {
                words.push(without_numbers(&argument.to_string_lossy(), &mut numbers));
            }
        }
        // Of a list that long no number stands for the size of a job: it is told apart as a whole.
        if numbers.len() > KEPT_NUMBERS {
            let mut digest = Sha256::new();
            for number in numbers.drain(..) {
                digest.update(number.to_bits().to_le_bytes());
            }
            words.push(short(digest));
        }
        let environment = ENVIRONMENT
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), given(name)?)))
            .collect();
        Some(Self {
            program: program.display().to_string(),
            words: shortened(words),
            environment,
            numbers,
            content: short(content),
        })
    }

    /// What all runs share that differ in numbers and in the content of the program alone.
    #[must_use]
    pub fn family(&self) -> String {
        short(self.family_digest())
    }

    /// What all runs of the very same command share.
    #[must_use]
    pub fn id(&self) -> String {
        let mut digest = self.family_digest();
        part(&mut digest, self.content.as_bytes());
        for number in &self.numbers {
            digest.update(number.to_bits().to_le_bytes());
        }
        short(digest)
    }

    fn family_digest(&self) -> Sha256 {
        let mut digest = Sha256::new();
        part(&mut digest, self.program.as_bytes());
        for word in &self.words {
            part(&mut digest, word.as_bytes());
        }
        part(&mut digest, b"environment");
        for (name, value) in &self.environment {
            part(&mut digest, name.as_bytes());
            part(&mut digest, value.as_bytes());
        }
        digest
    }
}

/// With its length, so that no two sequences of parts are the same bytes.
fn part(digest: &mut Sha256, bytes: &[u8]) {
    digest.update((bytes.len() as u64).to_le_bytes());
    digest.update(bytes);
}

/// The first 64 bits, as hexadecimal digits: among a few thousand entries no two are alike by chance.
fn short(digest: Sha256) -> String {
    let bytes = digest.finalize();
    bytes[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As the kernel and `execvp` would find it.
fn find(name: &OsStr, path: Option<&str>) -> Option<PathBuf> {
    let runs = |path: &Path| {
        path.metadata()
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if Path::new(name).components().count() > 1 || name.to_string_lossy().contains('/') {
        let path = PathBuf::from(name);
        return runs(&path).then_some(path);
    }
    // The folders that execvp tries where PATH is not set.
    std::env::split_paths(path.unwrap_or("/bin:/usr/bin"))
        .map(|folder| folder.join(name))
        .find(|path| runs(path))
}

/// The real path of the text file that an argument names.
fn script_at(argument: &OsStr) -> Option<PathBuf> {
    if argument.to_string_lossy().starts_with('-') {
        return None;
    }
    let file = std::fs::metadata(argument)
        .ok()
        .filter(|file| file.is_file() && file.len() <= SCRIPT)?;
    let mut start = Vec::new();
    let open = File::open(argument).ok()?;
    open.take(4096).read_to_end(&mut start).ok()?;
    let is_text = file.len() > 0 && !start.contains(&0);
    is_text.then(|| Path::new(argument).canonicalize().ok()).flatten()
}

/// Takes the size of a file and its content into `digest`: all of it, or of a large one both ends.
fn probe(path: &Path, digest: &mut Sha256) -> Option<()> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    digest.update(length.to_le_bytes());
    let mut bytes = Vec::new();
    if length <= SCRIPT {
        file.take(SCRIPT).read_to_end(&mut bytes).ok()?;
    } else {
        bytes.resize(2 * PROBE, 0);
        file.read_exact(&mut bytes[..PROBE]).ok()?;
        file.seek(SeekFrom::End(-(64 << 10))).ok()?;
        file.read_exact(&mut bytes[PROBE..]).ok()?;
    }
    digest.update(&bytes);
    Some(())
}

/// The word with `#` for each number that stands alone in it, between its ends or characters other than
/// letters, digits, `_` and `.`; the numbers go to `numbers`. `K M G T` behind one count thousands, `Ki` and so
/// on 1024s.
fn without_numbers(word: &str, numbers: &mut Vec<f64>) -> String {
    let mut kept = String::new();
    let mut rest = word;
    let mut before = None;
    while let Some(next) = rest.chars().next() {
        let open = !before.is_some_and(joins);
        let signed = matches!(before, None | Some('=' | ',' | ':'));
        match number_at(rest, signed).filter(|_| open) {
            Some((value, length)) => {
                numbers.push(value);
                kept.push('#');
                rest = &rest[length..];
                before = Some('#');
            }
            None => {
                kept.push(next);
                rest = &rest[next.len_utf8()..];
                before = Some(next);
            }
        }
    }
    kept
}

/// Whether a character makes one word with a digit beside it.
fn joins(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || character == '.'
}

/// The number that `text` begins with, and its bytes.
fn number_at(text: &str, signed: bool) -> Option<(f64, usize)> {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let sign = usize::from(signed && bytes[0] == b'-');
    let whole = digits(sign);
    if whole == 0 {
        return None;
    }
    let mut end = sign + whole;
    if bytes.get(end) == Some(&b'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let exponent = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        if exponent <= bytes.len() && digits(exponent) > 0 {
            end = exponent + digits(exponent);
        }
    }
    let value: f64 = text[..end].parse().ok()?;
    let mut scale = 1.0;
    if let Some(power) = bytes
        .get(end)
        .and_then(|unit| "KMGT".bytes().position(|known| known == *unit))
    {
        let binary = bytes.get(end + 1) == Some(&b'i');
        let base: f64 = if binary { 1024.0 } else { 1000.0 };
        let mut after = end + 1 + usize::from(binary);
        after += usize::from(bytes.get(after) == Some(&b'B'));
        if !text[after..].chars().next().is_some_and(joins) {
            end = after;
            scale = (0..=power).fold(1.0, |scale, _| scale * base);
        }
    }
    let closed = !text[end..].chars().next().is_some_and(joins);
    let scaled = value * scale;
    (closed && scaled.is_finite()).then_some((scaled, end))
}

/// Long argument lists are kept by their start and a digest of the whole.
fn shortened(words: Vec<String>) -> Vec<String> {
    if words.iter().map(String::len).sum::<usize>() <= KEPT_WORDS {
        return words;
    }
    let mut digest = Sha256::new();
    for word in &words {
        part(&mut digest, word.as_bytes());
    }
    let mut room = KEPT_WORDS / 2;
    let mut kept: Vec<String> = words
        .into_iter()
        .take_while(|word| {
            let fits = word.len() <= room;
            room = room.saturating_sub(word.len());
            fits
        })
        .collect();
    kept.push(format!("... {}", short(digest)));
    kept
}

#[cfg(test)]
mod tests;
