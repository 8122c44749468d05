//! Libraries: code loaded once for all contexts.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

use crate::code::Code;
use crate::contexts::current;
use crate::gate::{Host, In, Out, Text, entries};
use crate::handle::Handle;
use crate::image;
use crate::process::Process;

use super::module::{attribute_of, set_attribute};

entries! {
    fn cuLibraryLoadData(
        library: Out<Handle>, code: Host, _options: In<c_int>, _values: In<Host>, _count: c_uint,
        _library_options: In<c_int>, _library_values: In<Host>, _library_count: c_uint,
    ) {
        let process = Process::get()?;
        if library.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let image = image::at(code)?;
        let handle = process.state().load_library(image);
        library.put(handle)
    }

    fn cuLibraryLoadFromFile(
        library: Out<Handle>, path: Text, _options: In<c_int>, _values: In<Host>, _count: c_uint,
        _library_options: In<c_int>, _library_values: In<Host>, _library_count: c_uint,
    ) {
        let process = Process::get()?;
        if library.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let image = image::file(path.get()?)?;
        let handle = process.state().load_library(image);
        library.put(handle)
    }

    fn cuLibraryUnload(library: Handle) {
        Process::get()?.state().unload_library(library)
    }

    fn cuLibraryGetKernel(kernel: Out<Handle>, library: Handle, name: Text) {
        let process = Process::get()?;
        if kernel.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let found = process.state().kernel_named(library, name.get()?)?;
        kernel.put(found)
    }

    fn cuLibraryGetKernelCount(count: Out<c_uint>, library: Handle) {
        let kernels = Process::get()?.state().kernel_count(library)?;
        count.put(c_uint::try_from(kernels).unwrap_or(c_uint::MAX))
    }

    fn cuLibraryGetModule(module: Out<Handle>, library: Handle) {
        let (process, context) = current()?;
        let found = process.state().library_module(library, context)?;
        module.put(found)
    }

    fn cuLibraryGetGlobal(address: Out<u64>, bytes: Out<u64>, library: Handle, name: Text) {
        let (process, context) = current()?;
        let name = name.get()?;
        let mut state = process.state();
        let module = state.library_module(library, context)?;
        let (found, length) = state.variable(module, name)?;
        bytes.put_if(length);
        address.put_if(found);
        Ok(())
    }

    fn cuKernelGetFunction(function: Out<Handle>, kernel: Handle) {
        let (process, context) = current()?;
        let mut state = process.state();
        if !state.modules.kernels.contains_key(&kernel) {
            return Err(Code::INVALID_HANDLE);
        }
        let found = state.function(kernel, context)?;
        function.put(found)
    }

    fn cuKernelGetLibrary(library: Out<Handle>, kernel: Handle) {
        let state = Process::get()?.state();
        let found = state.modules.kernels.get(&kernel).ok_or(Code::INVALID_HANDLE)?;
        library.put(found.library)
    }

    fn cuKernelGetName(name: Out<*const c_char>, kernel: Handle) {
        let mut state = Process::get()?.state();
        let found = state.modules.kernels.get(&kernel).ok_or(Code::INVALID_HANDLE)?;
        let found = Arc::clone(&found.name);
        name.put(state.modules.c_name(&found)?)
    }

    fn cuKernelGetAttribute(value: Out<c_int>, attribute: c_int, kernel: Handle, device: c_int) {
        let (process, context) = current()?;
        process.device(device)?;
        value.put(attribute_of(process, context, kernel, attribute)?)
    }

    fn cuKernelSetAttribute(attribute: c_int, value: c_int, kernel: Handle, device: c_int) {
        let (process, context) = current()?;
        process.device(device)?;
        set_attribute(process, context, kernel, attribute, value)
    }

    fn cuKernelSetCacheConfig(kernel: Handle, config: c_int, device: c_int) {
        let process = Process::get()?;
        process.device(device)?;
        let known = process.state().modules.kernels.contains_key(&kernel);
        match config {
            _ if !known => Err(Code::INVALID_HANDLE),
            0..=3 => Ok(()),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}
