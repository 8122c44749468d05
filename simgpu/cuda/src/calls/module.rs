//! Modules and their functions.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use crate::attributes::shared_per_sm;
use crate::code::{Answer, Code};
use crate::contexts::current;
use crate::gate::{Host, In, Out, Text, entries};
use crate::handle::Handle;
use crate::image::{self, Image};
use crate::modules::DEFAULT_SHARED;
use crate::process::Process;

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`
const MAX_DYNAMIC_SHARED: c_int = 8;
/// Registers of a thread of any kernel: what a kernel really uses is not known.
pub(crate) const REGISTERS: c_int = 32;

entries! {
    fn cuModuleLoad(module: Out<Handle>, path: Text) {
        current()?;
        let image = image::file(path.get()?)?;
        load(module, image)
    }

    fn cuModuleLoadData(module: Out<Handle>, image: Host) { load_data(module, image) }

    /// Options of the compiler are not looked at; those that ask for a log get none.
    fn cuModuleLoadDataEx(
        module: Out<Handle>, image: Host, _count: c_uint, _options: In<c_int>, _values: In<Host>,
    ) {
        load_data(module, image)
    }

    fn cuModuleLoadFatBinary(module: Out<Handle>, image: Host) { load_data(module, image) }

    fn cuModuleUnload(module: Handle) {
        let (process, _) = current()?;
        process.state().unload_module(module)
    }

    fn cuModuleGetFunction(function: Out<Handle>, module: Handle, name: Text) {
        let (process, _) = current()?;
        if function.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let found = process.state().function_named(module, name.get()?)?;
        function.put(found)
    }

    fn cuModuleGetFunctionCount(count: Out<c_uint>, module: Handle) {
        let names = Process::get()?.state().kernel_names(module)?;
        count.put(c_uint::try_from(names.len()).unwrap_or(c_uint::MAX))
    }

    fn cuModuleEnumerateFunctions(functions: Out<Handle>, room: c_uint, module: Handle) {
        let mut state = Process::get()?.state();
        let names = state.kernel_names(module)?;
        for (index, name) in names.iter().take(room as usize).enumerate() {
            functions.at(index).put(state.function_named(module, name)?)?;
        }
        Ok(())
    }

    fn cuModuleGetGlobal(address: Out<c_uint>, bytes: Out<c_uint>, module: Handle, name: Text) {
        let (process, _) = current()?;
        let (found, length) = process.state().variable(module, name.get()?)?;
        let narrow = |value| c_uint::try_from(value).map_err(|_| Code::INVALID_VALUE);
        bytes.put_if(narrow(length)?);
        address.put_if(narrow(found)?);
        Ok(())
    }

    fn cuModuleGetGlobal_v2(address: Out<u64>, bytes: Out<u64>, module: Handle, name: Text) {
        let (process, _) = current()?;
        let (found, length) = process.state().variable(module, name.get()?)?;
        bytes.put_if(length);
        address.put_if(found);
        Ok(())
    }

    /// Not of NVIDIA's driver: our runtime defines with it the variables of a fat binary, whose names are compressed.
    fn simgpuModuleGlobal(module: Handle, name: Text, bytes: u64) {
        let (process, _) = current()?;
        process.state().define_variable(module, name.get()?, bytes).map(drop)
    }

    /// 1: CU_MODULE_EAGER_LOADING
    fn cuModuleGetLoadingMode(mode: Out<c_int>) {
        Process::get()?;
        mode.put(1)
    }

    fn cuFuncGetModule(module: Out<Handle>, function: Handle) {
        let state = Process::get()?.state();
        let found = state.modules.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
        module.put(found.module)
    }

    fn cuFuncGetName(name: Out<*const c_char>, function: Handle) {
        let mut state = Process::get()?.state();
        let found = state.modules.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
        let found = Arc::clone(&found.name);
        name.put(state.modules.c_name(&found)?)
    }

    fn cuFuncLoad(function: Handle) {
        Process::get()?.state().modules.functions.get(&function).map(drop).ok_or(Code::INVALID_HANDLE)
    }

    /// 1: CU_FUNCTION_LOADING_STATE_LOADED
    fn cuFuncIsLoaded(loaded: Out<c_int>, function: Handle) {
        Process::get()?.state().modules.functions.get(&function).map(drop).ok_or(Code::INVALID_HANDLE)?;
        loaded.put(1)
    }

    fn cuFuncGetAttribute(value: Out<c_int>, attribute: c_int, function: Handle) {
        let (process, context) = current()?;
        value.put(attribute_of(process, context, function, attribute)?)
    }

    fn cuFuncSetAttribute(function: Handle, attribute: c_int, value: c_int) {
        let (process, context) = current()?;
        set_attribute(process, context, function, attribute, value)
    }

    fn cuFuncSetCacheConfig(function: Handle, config: c_int) { check_config(function, config, 3) }
    fn cuFuncSetSharedMemConfig(function: Handle, config: c_int) { check_config(function, config, 2) }
}

fn load_data(module: Out<Handle>, image: Host) -> Answer {
    current()?;
    load(module, image::at(image)?)
}

fn load(module: Out<Handle>, image: Image) -> Answer {
    let (process, context) = current()?;
    if module.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let mut state = process.state();
    let device = state.context(context)?.device;
    check_compute(process, device, &image)?;
    let handle = state.load_module(context, Arc::new(image))?;
    module.put(handle)
}

/// Code for a newer GPU than this one is refused; PTX for an older one is compiled.
fn check_compute(process: &Process, device: usize, image: &Image) -> Answer {
    let (_, device) = process.device(i32::try_from(device).map_err(|_| Code::INVALID_DEVICE)?)?;
    match image.compute {
        Some(wanted) if wanted > device.info.compute => Err(Code::INVALID_PTX),
        _ => Ok(()),
    }
}

/// `CU_FUNC_ATTRIBUTE_*` by number.
pub(crate) fn attribute_of(
    process: &Process,
    context: Handle,
    handle: Handle,
    attribute: c_int,
) -> Answer<c_int> {
    let mut state = process.state();
    let device = state.context(context)?.device;
    let function = state.function(handle, context)?;
    let function = state
        .modules
        .functions
        .get(&function)
        .ok_or(Code::INVALID_HANDLE)?;
    let (major, minor) = process
        .devices
        .get(device)
        .ok_or(Code::INVALID_DEVICE)?
        .info
        .compute;
    Ok(match attribute {
        0 => 1024,
        4 => REGISTERS,
        5 | 6 => major * 10 + minor,
        MAX_DYNAMIC_SHARED => function.max_dynamic_shared,
        9 => function.attributes.get(&9).copied().unwrap_or(-1),
        1..=3 | 7 | 10..=15 => function.attributes.get(&attribute).copied().unwrap_or(0),
        _ => return Err(Code::INVALID_VALUE),
    })
}

pub(crate) fn set_attribute(
    process: &Process,
    context: Handle,
    handle: Handle,
    attribute: c_int,
    value: c_int,
) -> Answer {
    let mut state = process.state();
    let device = state.context(context)?.device;
    let function = state.function(handle, context)?;
    let compute = process
        .devices
        .get(device)
        .ok_or(Code::INVALID_DEVICE)?
        .info
        .compute;
    let function = state
        .modules
        .functions
        .get_mut(&function)
        .ok_or(Code::INVALID_HANDLE)?;
    match attribute {
        MAX_DYNAMIC_SHARED if (0..=shared_per_sm(compute) - 1024).contains(&value) => {
            function.max_dynamic_shared = value;
        }
        9 if (-1..=100).contains(&value) => _ = function.attributes.insert(attribute, value),
        11..=15 if value >= 0 => _ = function.attributes.insert(attribute, value),
        _ => return Err(Code::INVALID_VALUE),
    }
    Ok(())
}

/// A preference for cache or shared memory is checked and changes nothing.
fn check_config(function: Handle, config: c_int, last: c_int) -> Answer {
    let (process, context) = current()?;
    process.state().function(function, context)?;
    if (0..=last).contains(&config) {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}

impl crate::modules::Modules {
    /// The name as C reads it; it lives as long as the process.
    pub(crate) fn c_name(&mut self, name: &Arc<str>) -> Answer<*const c_char> {
        let make = || CString::new(name.as_bytes()).map_err(|_| Code::INVALID_VALUE);
        let entry = self.c_names.entry(Arc::clone(name));
        Ok(match entry {
            std::collections::hash_map::Entry::Occupied(found) => found.get().as_ptr(),
            std::collections::hash_map::Entry::Vacant(place) => place.insert(make()?).as_ptr(),
        })
    }
}

const _: () = assert!(DEFAULT_SHARED == 48 << 10 && size_of::<*const c_void>() == size_of::<Handle>());
