//! Finds a function in the objects loaded behind us, without `dlsym`.
//!
//! We define `dlsym` and `dlvsym`, so neither can be used to find the C library's own. The dynamic symbol
//! tables of the loaded objects can: `dl_iterate_phdr` lists them in the order in which they are searched.
//! Nothing is allocated and no lock of ours is held.

use std::ffi::{CStr, c_int, c_void};
use std::num::NonZeroUsize;

/// Where one function is defined.
#[derive(Clone, Copy, Debug, Default)]
pub struct Definitions {
    /// In the first object behind us: what a program would get without us.
    pub next: Option<NonZeroUsize>,
    /// In the C library itself.
    pub libc: Option<NonZeroUsize>,
}

struct Search<'a> {
    name: &'a CStr,
    past_us: bool,
    found: Definitions,
}

/// The definitions of `name` in the objects behind this one.
#[must_use]
pub fn definitions(name: &CStr) -> Definitions {
    let mut search = Search {
        name,
        past_us: false,
        found: Definitions::default(),
    };
    let data = (&raw mut search).cast::<c_void>();
    // SAFETY: `visit` gets `data` back unchanged while `search` lives, and no copy of it outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), data) };
    search.found
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid record that lives until we return.
    let info = unsafe { &*info };
    // SAFETY: `data` is the `Search` that `definitions` passed in, and nothing else refers to it meanwhile.
    let search = unsafe { &mut *data.cast::<Search<'_>>() };
    if !search.past_us {
        search.past_us = contains_us(info);
        return 0;
    }
    let Some(address) = lookup(info, search.name) else {
        return 0;
    };
    search.found.next.get_or_insert(address);
    if is_libc(info) {
        search.found.libc = Some(address);
        return 1;
    }
    0
}

fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    // SAFETY: the loader keeps `dlpi_phnum` program headers at `dlpi_phdr` while the object is loaded.
    unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
}

fn contains_us(info: &libc::dl_phdr_info) -> bool {
    let here = definitions as *const () as u64;
    headers(info).iter().any(|header| {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        header.p_type == libc::PT_LOAD && (start..start.wrapping_add(header.p_memsz)).contains(&here)
    })
}

fn is_libc(info: &libc::dl_phdr_info) -> bool {
    if info.dlpi_name.is_null() {
        return false;
    }
    // SAFETY: the loader gives each object a name that ends in a zero byte.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
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

/// Looks `name` up in one object by its GNU hash table, which each glibc since 2.5 has.
fn lookup(info: &libc::dl_phdr_info, name: &CStr) -> Option<NonZeroUsize> {
    let base = info.dlpi_addr;
    let dynamic = headers(info)
        .iter()
        .find(|header| header.p_type == libc::PT_DYNAMIC)?;
    let mut entry = address(base.wrapping_add(dynamic.p_vaddr)) as *const Dynamic;
    let (mut names, mut symbols, mut hash) = (None, None, None);
    loop {
        // SAFETY: the dynamic section of a loaded object is mapped and ends with a zero tag.
        let Dynamic { tag, value } = unsafe { entry.read() };
        // The loader has relocated the values of ordinary objects, but not those of the vdso.
        let place = Some(if value < base {
            value.wrapping_add(base)
        } else {
            value
        });
        match tag {
            0 => break,
            DT_STRTAB => names = place,
            DT_SYMTAB => symbols = place,
            DT_GNU_HASH => hash = place,
            _ => {}
        }
        // SAFETY: the zero tag has not been met, so another entry follows.
        entry = unsafe { entry.add(1) };
    }
    let table = GnuHash {
        words: address(hash?) as *const u32,
        symbols: address(symbols?) as *const libc::Elf64_Sym,
        names: address(names?) as *const libc::c_char,
    };
    let value = table.find(name)?;
    NonZeroUsize::new(address(base.wrapping_add(value)))
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
    fn a_name_that_nobody_defines_is_not_found() {
        assert!(definitions(c"cuNoSuchFunction").next.is_none());
    }
}
