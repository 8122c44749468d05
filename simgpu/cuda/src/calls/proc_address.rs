//! How programs find entry points without the linker: by base name, version and which default stream they mean.

use std::ffi::{c_int, c_ulonglong, c_void};
use std::sync::OnceLock;

use crate::abi::Uuid;
use crate::code::{Answer, Code};
use crate::gate::{In, Out, Text, entries};
use crate::table::{self, Found};

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
const FLAGS: c_ulonglong = 3;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
const PER_THREAD: c_ulonglong = 2;

entries! {
    /// The ABI of CUDA 11.3, with four arguments: who asks for version 11030 by `cuGetProcAddress` itself calls this.
    fn cuGetProcAddress(symbol: Text, function: Out<*const c_void>, version: c_int, flags: c_ulonglong) {
        find(symbol, function, version, flags).0
    }

    fn cuGetProcAddress_v2(
        symbol: Text, function: Out<*const c_void>, version: c_int, flags: c_ulonglong, status: Out<c_int>,
    ) {
        let (answer, found) = find(symbol, function, version, flags);
        status.put_if(found);
        answer
    }

    /// Tables of undocumented functions. There are none: NVIDIA's own runtime goes no further than this.
    fn cuGetExportTable(table: Out<*const c_void>, id: In<Uuid>) {
        if id.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        table.put(std::ptr::null())?;
        Err(Code::NOT_FOUND)
    }
}

/// The answer, and the `CUdriverProcAddressQueryResult`.
fn find(symbol: Text, function: Out<*const c_void>, version: c_int, flags: c_ulonglong) -> (Answer, c_int) {
    static DRIVER: OnceLock<i32> = OnceLock::new();
    let known = !symbol.is_null() && !function.is_null() && flags & !FLAGS == 0;
    let Ok(name) = symbol
        .get()
        .and_then(|name| if known { Ok(name) } else { Err(Code::INVALID_VALUE) })
    else {
        return (Err(Code::INVALID_VALUE), 1);
    };
    // What a newer driver would have is not there.
    let driver = *DRIVER.get_or_init(super::device::driver_version);
    match table::find(name, version, driver, flags & PER_THREAD != 0) {
        Found::At(address) => (function.put(address), 0),
        Found::Newer => (function.put(std::ptr::null()).and(Err(Code::NOT_FOUND)), 2),
        Found::Nowhere => (function.put(std::ptr::null()).and(Err(Code::NOT_FOUND)), 1),
    }
}
