//! Kernel launches and host functions. A kernel computes nothing: it takes the time that its cost says.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use crate::abi::LaunchConfig;
use crate::code::{Answer, Code};
use crate::contexts::current;
use crate::costs::blocks_per_sm;
use crate::gate::{Host, In, entries};
use crate::graphs::{self, Kernel, NodeWork};
use crate::handle::Handle;
use crate::player::{HostCall, UserData};
use crate::process::Process;
use crate::slice::Slice;
use crate::timeline::{Load, Work};

/// Most blocks of a grid, and most threads of a block, by axis.
const GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
const BLOCK: [u32; 3] = [1024, 1024, 64];
/// Most threads of a block.
const THREADS: u64 = 1024;

entries! {
    fn cuLaunchKernel(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: Handle, parameters: Host, extra: Host,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(function, grid, block, shared, (stream, false), (parameters, extra))
    }

    fn cuLaunchKernel_ptsz(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: Handle, parameters: Host, extra: Host,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(function, grid, block, shared, (stream, true), (parameters, extra))
    }

    /// Attributes of a launch (clusters, priorities and the like) change nothing here.
    fn cuLaunchKernelEx(config: In<LaunchConfig>, function: Handle, parameters: Host, extra: Host) {
        let config = config.get()?;
        let stream = (config.stream, false);
        launch(function, config.grid, config.block, config.shared_bytes, stream, (parameters, extra))
    }

    fn cuLaunchKernelEx_ptsz(config: In<LaunchConfig>, function: Handle, parameters: Host, extra: Host) {
        let config = config.get()?;
        let stream = (config.stream, true);
        launch(function, config.grid, config.block, config.shared_bytes, stream, (parameters, extra))
    }

    /// All blocks of such a grid wait for each other, so all must be on the slice at the same time.
    fn cuLaunchCooperativeKernel(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: Handle, parameters: Host,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        check_cooperative(grid, block)?;
        launch(function, grid, block, shared, (stream, false), (parameters, Host::from_address(0)))
    }

    fn cuLaunchCooperativeKernel_ptsz(
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: Handle, parameters: Host,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        check_cooperative(grid, block)?;
        launch(function, grid, block, shared, (stream, true), (parameters, Host::from_address(0)))
    }

    fn cuLaunchHostFunc(stream: Handle, function: Option<extern "C" fn(*mut c_void)>, data: Host) {
        host_function(stream, false, function, data)
    }

    fn cuLaunchHostFunc_ptsz(stream: Handle, function: Option<extern "C" fn(*mut c_void)>, data: Host) {
        host_function(stream, true, function, data)
    }

    fn cuStreamAddCallback(
        stream: Handle, function: Option<extern "C" fn(u64, c_int, *mut c_void)>, data: Host, flags: c_uint,
    ) {
        callback(stream, false, function, data, flags)
    }

    fn cuStreamAddCallback_ptsz(
        stream: Handle, function: Option<extern "C" fn(u64, c_int, *mut c_void)>, data: Host, flags: c_uint,
    ) {
        callback(stream, true, function, data, flags)
    }
}

/// Whether each of the three is from 1 to its limit.
fn within(sizes: [u32; 3], limits: [u32; 3]) -> bool {
    sizes
        .iter()
        .zip(limits)
        .all(|(&size, limit)| (1..=limit).contains(&size))
}

fn product(sizes: [u32; 3]) -> u64 {
    sizes
        .iter()
        .map(|&size| u64::from(size))
        .fold(1, u64::saturating_mul)
}

/// A kernel launch as the program asks for it.
#[derive(Clone, Copy)]
pub(crate) struct Launch {
    pub(crate) function: Handle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: c_uint,
    /// Parameters come by pointer or in a buffer, not both.
    pub(crate) has_both: bool,
}

impl Launch {
    /// Checks it against the function and the device of a context; answers what it costs. `current` is where a kernel
    /// of a library is looked up.
    pub(crate) fn plan(self, process: &Process, current: Handle, context: Handle) -> Answer<Kernel> {
        let mut state = process.state();
        let function = state.function(self.function, current)?;
        let function = state
            .modules
            .functions
            .get(&function)
            .ok_or(Code::INVALID_HANDLE)?;
        if function.context != context {
            return Err(Code::INVALID_HANDLE);
        }
        let threads = product(self.block);
        let shared_fits = u64::from(self.shared) <= u64::from(function.max_dynamic_shared.unsigned_abs());
        let sizes_fit = within(self.grid, GRID) && within(self.block, BLOCK) && threads <= THREADS;
        if !sizes_fit || !shared_fits || self.has_both {
            return Err(Code::INVALID_VALUE);
        }
        let name = Arc::clone(&function.name);
        let (device, part) = {
            let context = state.context(context)?;
            (context.device, context.sms)
        };
        drop(state);
        let device = process.devices.get(device).ok_or(Code::INVALID_DEVICE)?;
        let threads = u32::try_from(threads).map_err(|_| Code::INVALID_VALUE)?;
        let sms = part.unwrap_or(device.info.sms);
        let cost = process
            .costs
            .of(&name, product(self.grid), threads, sms, device.all_sms);
        Ok(Kernel {
            sms: cost.sms,
            seconds: cost.seconds,
        })
    }
}

impl Kernel {
    pub(crate) fn work(self) -> Work<Slice> {
        Work::Run {
            load: Load::Kernel { sms: self.sms },
            amount: self.seconds,
        }
    }
}

fn launch(
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: c_uint,
    (stream, per_thread): (Handle, bool),
    (parameters, extra): (Host, Host),
) -> Answer {
    let (process, current_context) = current()?;
    let place = process.capture_place(stream, per_thread)?;
    let launch = Launch {
        function,
        grid,
        block,
        shared,
        has_both: !parameters.0.is_null() && !extra.0.is_null(),
    };
    let kernel = launch.plan(process, current_context, place.context)?;
    if process
        .capture(place, |_| Ok(NodeWork::Kernel(kernel)))?
        .is_some()
    {
        return Ok(());
    }
    process
        .player
        .submit(place.lane, kernel.work(), Vec::new())
        .map(drop)
}

fn check_cooperative(grid: [u32; 3], block: [u32; 3]) -> Answer {
    let (process, context) = current()?;
    let device = process.state().context(context)?.device;
    let sms = process.devices.get(device).ok_or(Code::INVALID_DEVICE)?.info.sms;
    let threads = u32::try_from(product(block)).unwrap_or(u32::MAX).min(1024);
    let room = u64::from(sms) * u64::from(blocks_per_sm(threads));
    if product(grid) <= room {
        Ok(())
    } else {
        Err(Code::COOPERATIVE_LAUNCH_TOO_LARGE)
    }
}

fn host_function(
    stream: Handle,
    per_thread: bool,
    function: Option<extern "C" fn(*mut c_void)>,
    data: Host,
) -> Answer {
    let process = Process::get()?;
    let place = process.capture_place(stream, per_thread)?;
    let function = function.ok_or(Code::INVALID_VALUE)?;
    if process
        .capture(place, |_| Ok(graphs::call(function, data)))?
        .is_some()
    {
        return Ok(());
    }
    let call = HostCall::Function {
        function,
        data: UserData(data.0),
    };
    process
        .player
        .submit(place.lane, Work::Call(call), Vec::new())
        .map(drop)
}

fn callback(
    stream: Handle,
    per_thread: bool,
    function: Option<extern "C" fn(u64, c_int, *mut c_void)>,
    data: Host,
    flags: c_uint,
) -> Answer {
    let process = Process::get()?;
    let (lane, _) = process.lane(stream, per_thread)?;
    let function = function.filter(|_| flags == 0).ok_or(Code::INVALID_VALUE)?;
    // A callback wants the stream's status, which a graph does not have.
    process.state().captures.refuse_lane(lane)?;
    let call = HostCall::Callback {
        function,
        stream,
        data: UserData(data.0),
    };
    process
        .player
        .submit(lane, Work::Call(call), Vec::new())
        .map(drop)
}
