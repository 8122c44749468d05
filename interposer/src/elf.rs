//! Finds a function in the objects loaded behind us, without `dlsym`.
//!
//! We define `dlsym` and `dlvsym`, so neither can be used to find the C library's own. The dynamic symbol
//! tables of the loaded objects can. Nothing is allocated and no lock of ours is held.
//!
//! `dl_iterate_phdr` takes a lock of the loader's that a forked child keeps as it was: a child that calls it while a
//! thread of its parent was in it, or in `dlopen`, waits for ever. So what a program cannot do without is
//! [found](definitions) by the loader's own list, without a lock. That is safe among the objects that the program was
//! started with, which never go; they end with the loader itself. [`anywhere`] and [`imports`] look further.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::num::NonZeroUsize;

/// Where one function is defined.
#[derive(Clone, Copy, Debug, Default)]
pub struct Definitions {
    /// In the first object behind us: what a program would get without us.
    pub next: Option<NonZeroUsize>,
    /// In the C library itself.
    pub libc: Option<NonZeroUsize>,
}

/// The public part of the loader's `struct link_map`.
#[repr(C)]
struct Loaded {
    base: u64,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: *const Loaded,
}

/// The loader's `struct r_debug`, which it keeps for debuggers.
#[derive(Clone, Copy)]
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const Loaded,
    hook: u64,
    state: c_int,
    loader: u64,
}

unsafe extern "C" {
    /// The loader's list of objects.
    static _r_debug: Debug;
    /// Our own dynamic section; the link editor makes it.
    static _DYNAMIC: Dynamic;
}

/// The objects behind this one that the program was started with, in the order in which they are searched.
fn behind_us() -> impl Iterator<Item = &'static Loaded> {
    // SAFETY: the loader's variable is there for as long as the process; what is used of it was written before any of us ran.
    let Debug { first, loader, .. } = unsafe { (&raw const _r_debug).read_volatile() };
    // SAFETY: an entry is null or lives as long as its object, and those up to the loader's live as long as the process.
    let all = std::iter::successors(unsafe { first.as_ref() }, |object| unsafe {
        object.next.as_ref()
    });
    let mut past_us = false;
    let mut over = false;
    all.filter(move |object| {
        let before = past_us;
        past_us |= std::ptr::eq(object.dynamic, &raw const _DYNAMIC);
        before
    })
    .take_while(move |object| !std::mem::replace(&mut over, object.base == loader))
}

/// The definitions of `name` in the objects that the program was started with.
#[must_use]
pub fn definitions(name: &CStr) -> Definitions {
    let mut found = Definitions::default();
    for object in behind_us() {
        let Some(address) = lookup(object.base, object.dynamic, name) else {
            continue;
        };
        found.next.get_or_insert(address);
        if is_libc(object) {
            found.libc = Some(address);
            break;
        }
    }
    found
}

struct Search<'a> {
    name: &'a CStr,
    past_us: bool,
    found: Option<NonZeroUsize>,
}

/// The first definition of `name` behind this object, also in objects that were loaded later. It takes the loader's lock.
#[must_use]
pub fn anywhere(name: &CStr) -> Option<NonZeroUsize> {
    let mut search = Search {
        name,
        past_us: false,
        found: None,
    };
    let data = (&raw mut search).cast::<c_void>();
    // SAFETY: `visit` gets `data` back unchanged while `search` lives, and no copy of it outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), data) };
    search.found
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record that lives until we return.
    let info = unsafe { &*info };
    // SAFETY: `data` is the `Search` that `anywhere` passed in, and nothing else refers to it meanwhile.
    let search = unsafe { &mut *data.cast::<Search<'_>>() };
    if !search.past_us {
        search.past_us = contains_us(info);
        return 0;
    }
    search.found = dynamic(info).and_then(|dynamic| lookup(info.dlpi_addr, dynamic, search.name));
    c_int::from(search.found.is_some())
}

fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    // SAFETY: the loader keeps `dlpi_phnum` program headers at `dlpi_phdr` while the object is loaded.
    unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
}

fn contains_us(info: &libc::dl_phdr_info) -> bool {
    contains(info, definitions as *const () as u64)
}

fn contains(info: &libc::dl_phdr_info, address: u64) -> bool {
    headers(info).iter().any(|header| {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        header.p_type == libc::PT_LOAD && (start..start.wrapping_add(header.p_memsz)).contains(&address)
    })
}

fn is_libc(object: &Loaded) -> bool {
    if object.name.is_null() {
        return false;
    }
    // SAFETY: the loader gives each object a name that ends in a zero byte.
    let name = unsafe { CStr::from_ptr(object.name) }.to_bytes();
    let base = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    // Before glibc 2.34 the functions were in a library of their own.
    [&b"libc.so"[..], b"libc-", b"libdl.so", b"libdl-"]
        .iter()
        .any(|start| base.starts_with(start))
}

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

/// The dynamic section of a loaded object: tags and places. A tag whose value is no place comes out wrong and is
/// not asked for here, but for [`raw_entries`].
fn entries(base: u64, dynamic: *const Dynamic) -> impl Iterator<Item = (i64, u64)> {
    // The loader has relocated the values of ordinary objects, but not those of the vdso.
    raw_entries(dynamic).map(move |(tag, value)| {
        let place = if value < base {
            value.wrapping_add(base)
        } else {
            value
        };
        (tag, place)
    })
}

/// The dynamic section as it is.
fn raw_entries(dynamic: *const Dynamic) -> impl Iterator<Item = (i64, u64)> {
    let mut entry = dynamic;
    std::iter::from_fn(move || {
        // SAFETY: the dynamic section of a loaded object is mapped and ends with a zero tag, which is not passed.
        let Dynamic { tag, value } = unsafe { entry.read() };
        if tag == 0 {
            return None;
        }
        // SAFETY: the zero tag has not been met, so another entry follows.
        entry = unsafe { entry.add(1) };
        Some((tag, value))
    })
}

/// Looks `name` up in one object by its GNU hash table, which each glibc since 2.5 has.
fn lookup(base: u64, dynamic: *const Dynamic, name: &CStr) -> Option<NonZeroUsize> {
    let (mut names, mut symbols, mut hash) = (None, None, None);
    for (tag, place) in entries(base, dynamic) {
        match tag {
            DT_STRTAB => names = Some(place),
            DT_SYMTAB => symbols = Some(place),
            DT_GNU_HASH => hash = Some(place),
            _ => {}
        }
    }
    let table = GnuHash {
        words: address(hash?) as *const u32,
        symbols: address(symbols?) as *const libc::Elf64_Sym,
        names: address(names?) as *const libc::c_char,
    };
    let value = table.find(name)?;
    NonZeroUsize::new(address(base.wrapping_add(value)))
}

fn dynamic(info: &libc::dl_phdr_info) -> Option<*const Dynamic> {
    let mut headers = headers(info).iter();
    let header = headers.find(|header| header.p_type == libc::PT_DYNAMIC)?;
    Some(address(info.dlpi_addr.wrapping_add(header.p_vaddr)) as *const Dynamic)
}

/// A function that an object imports.
#[derive(Clone, Copy, Debug)]
pub struct Import<'a> {
    /// The object's path; empty for the program itself.
    pub object: &'a CStr,
    /// The function's name.
    pub name: &'a CStr,
    /// Where calls of it go; `None` while that is not decided yet.
    pub target: Option<usize>,
}

/// Visits the functions that each loaded object but this one imports from others.
pub fn imports(mut visit: impl FnMut(Import<'_>)) {
    let mut visit: &mut dyn FnMut(Import<'_>) = &mut visit;
    let data = (&raw mut visit).cast::<c_void>();
    // SAFETY: `visit_imports` gets `data` back unchanged while `visit` lives, and no copy outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit_imports), data) };
}

unsafe extern "C" fn visit_imports(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record that lives until we return.
    let info = unsafe { &*info };
    // SAFETY: `data` is the closure that `imports` passed in, and nothing else refers to it meanwhile.
    let visit = unsafe { &mut *data.cast::<&mut dyn FnMut(Import<'_>)>() };
    if !contains(info, definitions as *const () as u64) && !info.dlpi_name.is_null() {
        imports_of(info, visit);
    }
    0
}

/// One relocation.
#[derive(Clone, Copy)]
#[repr(C)]
struct Rela {
    offset: u64,
    info: u64,
    addend: i64,
}

const DT_PLTRELSZ: i64 = 2;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

/// Kinds of relocations that stand for a function's whole address.
#[cfg(target_arch = "x86_64")]
const ADDRESSES: [u64; 3] = [1, 6, 7];
/// Kinds of relocations that stand for a function's whole address.
#[cfg(target_arch = "aarch64")]
const ADDRESSES: [u64; 3] = [257, 1025, 1026];

fn imports_of(info: &libc::dl_phdr_info, visit: &mut dyn FnMut(Import<'_>)) -> Option<()> {
    let (base, dynamic) = (info.dlpi_addr, dynamic(info)?);
    let place = |wanted| {
        entries(base, dynamic)
            .find(|entry| entry.0 == wanted)
            .map(|entry| entry.1)
    };
    let size = |wanted| {
        raw_entries(dynamic)
            .find(|entry| entry.0 == wanted)
            .map(|entry| entry.1)
    };
    let table = GnuHash {
        words: std::ptr::null(),
        symbols: address(place(DT_SYMTAB)?) as *const libc::Elf64_Sym,
        names: address(place(DT_STRTAB)?) as *const libc::c_char,
    };
    // SAFETY: the loader gives each object a name that ends in a zero byte.
    let object = unsafe { CStr::from_ptr(info.dlpi_name) };
    for (start, bytes) in [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)] {
        let (Some(start), Some(bytes)) = (place(start), size(bytes)) else {
            continue;
        };
        let count = address(bytes) / size_of::<Rela>();
        // SAFETY: a loaded object keeps its relocations mapped, as many as it says.
        let relocations = unsafe { std::slice::from_raw_parts(address(start) as *const Rela, count) };
        for relocation in relocations {
            let Ok(symbol) = u32::try_from(relocation.info >> 32) else {
                continue;
            };
            if symbol == 0 || !ADDRESSES.contains(&(relocation.info & 0xffff_ffff)) {
                continue;
            }
            let symbol = table.symbol(symbol);
            if symbol.st_shndx != 0 {
                continue;
            }
            let slot = address(base.wrapping_add(relocation.offset)) as *const u64;
            // SAFETY: the slot of a relocation is a word of the loaded object; the loader may be writing it.
            let target = unsafe { slot.read_volatile() };
            visit(Import {
                object,
                name: table.name(symbol),
                // Until the first call a slot leads back into the object itself.
                target: (!contains(info, target)).then(|| address(target)),
            });
        }
    }
    Some(())
}

fn address(value: u64) -> usize {
    usize::try_from(value).unwrap_or(0)
}

/// Bucket count, first symbol, bloom size, bloom shift; bloom words of 64 bits; buckets; chains.
struct GnuHash {
    words: *const u32,
    symbols: *const libc::Elf64_Sym,
    names: *const libc::c_char,
}

impl GnuHash {
    fn word(&self, index: usize) -> u32 {
        // SAFETY: callers stay within the bucket count and the chains that the table itself declares.
        let word = unsafe { self.words.add(index) };
        // SAFETY: the table is mapped, read-only, while the object is loaded.
        unsafe { word.read() }
    }

    fn symbol(&self, index: u32) -> &libc::Elf64_Sym {
        // SAFETY: the chain of a bucket names symbols of this object's table only.
        let symbol = unsafe { self.symbols.add(index as usize) };
        // SAFETY: symbol tables are read-only and mapped while the object is loaded.
        unsafe { &*symbol }
    }

    fn name(&self, symbol: &libc::Elf64_Sym) -> &CStr {
        // SAFETY: a symbol's name is an offset into the object's own string table.
        let name = unsafe { self.names.add(symbol.st_name as usize) };
        // SAFETY: names in a string table end in a zero byte.
        unsafe { CStr::from_ptr(name) }
    }

    fn find(&self, name: &CStr) -> Option<u64> {
        let [buckets, first, bloom] = [0, 1, 2].map(|index| self.word(index));
        if buckets == 0 {
            return None;
        }
        let hash = gnu_hash(name.to_bytes());
        let bucket_start = 4 + 2 * bloom as usize;
        let chain_start = bucket_start + buckets as usize;
        let mut index = self.word(bucket_start + (hash % buckets) as usize);
        while index >= first {
            let chained = self.word(chain_start + (index - first) as usize);
            let symbol = self.symbol(index);
            let is_function = symbol.st_info & 0xf == 2 && symbol.st_shndx != 0;
            if chained | 1 == hash | 1 && is_function && self.name(symbol) == name {
                return Some(symbol.st_value);
            }
            if chained & 1 == 1 {
                return None;
            }
            index += 1;
        }
        None
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| {
        hash.wrapping_mul(33).wrapping_add(byte.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_librarys_own_functions_are_found() {
        let found = definitions(c"getpid");
        assert_eq!(found.libc.unwrap().get(), libc::getpid as *const () as usize);
        assert!(definitions(c"dlsym").libc.is_some());
        assert!(definitions(c"dlvsym").libc.is_some());
    }

    #[test]
    fn imports_of_other_objects_lead_to_other_objects() {
        let (mut decided, mut of_us) = (0, 0);
        imports(|import| {
            decided += usize::from(import.target.is_some());
            of_us += usize::from(import.object == c"");
        });
        // The C library imports from the loader, which decides that at once.
        assert!(decided > 0);
        assert_eq!(of_us, 0, "the test itself contains us");
    }

    #[test]
    fn a_name_that_nobody_defines_is_not_found() {
        assert!(definitions(c"cuNoSuchFunction").next.is_none());
    }
}
