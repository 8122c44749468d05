//! What goes past us: libraries whose lookups do, and forms of functions that came after us.
//!
//! 1. A library loaded with `RTLD_DEEPBIND` looks for symbols in itself and what it needs, before the global
//!    scope in which we come first. If that is the driver, or the C library's `dlsym`, its calls are not seen.
//! 2. Our `dlopen` notes the names of such libraries; nothing else happens in a process that loads none.
//! 3. The sender thread then looks through the loaded objects for some rounds, as the library is only about to be
//!    loaded, and reads where their calls go: that is the fact, whatever flag brought it about.
//! 4. When `cuGetProcAddress` hands out a form of one of our functions that is none we know, that is noted too.
//! 5. Each object and each form is reported once, as what cannot be seen and why.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicUsize, Ordering::AcqRel, Ordering::Acquire,
    Ordering::Relaxed, Ordering::Release,
};

use crate::driver;
use crate::elf::{self, Import};
use crate::table;

/// Libraries noted; more of them are still found once their calls are resolved.
const NAMES: usize = 16;
/// Bytes kept of each name: its end.
const LENGTH: usize = 96;
/// Rounds of the sender for which to look after a library was noted.
const ROUNDS: u32 = 100;

static NOTED: AtomicUsize = AtomicUsize::new(0);
static NOTES: [Name; NAMES] = [const { Name::new() }; NAMES];

struct Name {
    bytes: [AtomicU8; LENGTH],
    written: AtomicBool,
}

impl Name {
    const fn new() -> Self {
        Self {
            bytes: [const { AtomicU8::new(0) }; LENGTH],
            written: AtomicBool::new(false),
        }
    }

    fn get(&self) -> Option<Vec<u8>> {
        let bytes = self.bytes.iter().map(|byte| byte.load(Relaxed));
        self.written
            .load(Acquire)
            .then(|| bytes.take_while(|&byte| byte != 0).collect())
    }
}

/// Notes a library that is about to be loaded with `RTLD_DEEPBIND`. Called from within `dlopen`: neither
/// allocates nor waits.
pub fn note(file: &CStr) {
    let number = NOTED.fetch_add(1, Relaxed);
    let Some(name) = NOTES.get(number) else { return };
    for (place, &byte) in name.bytes.iter().zip(end_of(file.to_bytes())) {
        place.store(byte, Relaxed);
    }
    name.written.store(true, Release);
}

/// Forms of functions that we do not know: the name, of a row and so never freed, and the version asked for.
static UNKNOWN: [(AtomicPtr<CStrStart>, AtomicI32); NAMES] =
    [const { (AtomicPtr::new(ptr::null_mut()), AtomicI32::new(0)) }; NAMES];

/// The first byte of a name.
type CStrStart = std::ffi::c_char;

/// Notes that the program was given a form of the function `base`, asked for by `version`, that has no hook.
#[cold]
pub fn note_unknown(base: &'static CStr, version: c_int) {
    let name = base.as_ptr().cast_mut();
    for (place, since) in &UNKNOWN {
        match place.compare_exchange(ptr::null_mut(), name, AcqRel, Acquire) {
            Ok(_) => return since.store(version, Release),
            // Once a function: what matters is that its calls are not seen.
            Err(there) if there == name => return,
            Err(_) => {}
        }
    }
}

/// The base name of a path, or the end of a long one.
fn end_of(path: &[u8]) -> &[u8] {
    let base = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    &base[base.len().saturating_sub(LENGTH)..]
}

/// What the sender keeps of this.
#[derive(Debug)]
pub struct Bypasses {
    /// How many libraries had been noted when it last began to look.
    noted: usize,
    rounds_left: u32,
    /// Objects reported.
    told: Vec<String>,
    /// How many unknown forms were reported.
    unknown_told: usize,
}

impl Bypasses {
    /// Nothing seen yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "made once per process")]
    pub const fn new() -> Self {
        Self {
            noted: 0,
            rounds_left: 0,
            told: Vec::new(),
            unknown_told: 0,
        }
    }

    /// One round: what has come to light.
    pub fn look(&mut self) -> Vec<String> {
        let mut causes = self.libraries();
        while let Some((place, since)) = UNKNOWN.get(self.unknown_told) {
            let (name, version) = (place.load(Acquire), since.load(Acquire));
            if name.is_null() || version == 0 {
                break;
            }
            // SAFETY: only names of rows are stored, which are never freed.
            let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
            causes.push(format!(
                "the driver's {name} for version {version} has a form that the interposer does not know"
            ));
            self.unknown_told += 1;
        }
        causes
    }

    fn libraries(&mut self) -> Vec<String> {
        let noted = NOTED.load(Relaxed);
        if noted != self.noted {
            self.noted = noted;
            self.rounds_left = ROUNDS;
        }
        if self.rounds_left == 0 {
            return Vec::new();
        }
        self.rounds_left -= 1;
        let names: Vec<_> = NOTES.iter().filter_map(Name::get).collect();
        let mut causes = Vec::new();
        elf::imports(|import| {
            if goes_past_us(import, &names) {
                let object = import.object.to_string_lossy().into_owned();
                if !self.told.contains(&object) {
                    let name = import.name.to_string_lossy();
                    causes.push(format!(
                        "{object} is loaded with RTLD_DEEPBIND: its calls of {name} go past the interposer"
                    ));
                    self.told.push(object);
                }
            }
        });
        causes
    }
}

/// Whether calls of a hooked function lead elsewhere, or will: those of a noted library that has not made any.
fn goes_past_us(import: Import<'_>, noted: &[Vec<u8>]) -> bool {
    let Some((ours, real)) = addresses(import.name) else {
        return false;
    };
    match import.target {
        Some(target) => target != ours && Some(target) == real,
        None => {
            let object = end_of(import.object.to_bytes());
            noted.iter().any(|name| name == object)
        }
    }
}

/// Our function of a name and the real one; `None` for a name that we do not hook.
fn addresses(name: &CStr) -> Option<(usize, Option<usize>)> {
    use crate::hooks::lookup::{dlsym, dlvsym};
    let of_library = |ours: usize, real: usize| Some((ours, Some(real)));
    match name.to_bytes() {
        b"dlsym" => of_library(dlsym as *const () as usize, driver::next_dlsym()),
        b"dlvsym" => of_library(dlvsym as *const () as usize, driver::next_dlvsym()),
        _ => {
            let row = table::rows().find(|row| row.entry.name() == name)?;
            Some((row.hook as usize, row.entry.address().map(usize::from)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noted_name_is_its_end() {
        assert_eq!(end_of(b"/opt/lib/libx.so.1"), b"libx.so.1");
        assert_eq!(end_of(b"libx.so"), b"libx.so");
        assert_eq!(end_of(&[b'a'; 200]).len(), LENGTH);
    }

    #[test]
    fn only_a_hooked_function_that_leads_elsewhere_goes_past_us() {
        let import = |name, target| Import {
            object: c"/opt/libx.so",
            name,
            target,
        };
        let real = driver::next_dlsym();
        assert!(goes_past_us(import(c"dlsym", Some(real)), &[]));
        assert!(!goes_past_us(
            import(c"dlsym", Some(crate::hooks::lookup::dlsym as *const () as usize)),
            &[]
        ));
        assert!(!goes_past_us(import(c"malloc", Some(real)), &[]));
        assert!(!goes_past_us(import(c"dlsym", None), &[]));
        assert!(goes_past_us(import(c"dlsym", None), &[b"libx.so".to_vec()]));
    }
}
