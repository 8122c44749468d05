//! Green contexts: resources, parts of them, contexts on a part.

use std::ffi::{c_int, c_uint};

use crate::abi::SmResource;
use crate::code::{Answer, Code};
use crate::gate::{In, Out, entries};
use crate::greens::{Green, split, steps};
use crate::handle::Handle;
use crate::process::Process;
use crate::timeline::Work;

/// `CU_DEV_RESOURCE_TYPE_SM`
const MULTIPROCESSORS: c_int = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM`: must be given.
const DEFAULT_STREAM: c_uint = 1;

entries! {
    fn cuDeviceGetDevResource(device: c_int, resource: Out<SmResource>, kind: c_int) {
        let process = Process::get()?;
        let (_, device) = process.device(device)?;
        tell(resource, kind, device.info.sms, device.info.compute)
    }

    fn cuCtxGetDevResource(context: Handle, resource: Out<SmResource>, kind: c_int) {
        let process = Process::get()?;
        let (device, part) = {
            let state = process.state();
            let context = state.context(context)?;
            (context.device, context.sms)
        };
        let device = process.devices.get(device).ok_or(Code::INVALID_DEVICE)?;
        tell(resource, kind, part.unwrap_or(device.info.sms), device.info.compute)
    }

    fn cuGreenCtxGetDevResource(green: Handle, resource: Out<SmResource>, kind: c_int) {
        let process = Process::get()?;
        let green = process.state().greens.get(green)?;
        let device = process.devices.get(green.device).ok_or(Code::INVALID_DEVICE)?;
        tell(resource, kind, green.sms, device.info.compute)
    }

    /// With no room for parts it answers how many there could be.
    fn cuDevSmResourceSplitByCount(
        parts: Out<SmResource>, count: Out<c_uint>, input: In<SmResource>, rest: Out<SmResource>, flags: c_uint,
        least: c_uint,
    ) {
        Process::get()?;
        let input = input.get()?;
        if input.kind != MULTIPROCESSORS || flags > 3 || input.least_part == 0 || input.alignment == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let step = (input.least_part, input.alignment);
        let room = if parts.is_null() { c_uint::MAX } else { count.as_in().get()? };
        let (made, size, left) = split(input.sms, step, least, room)?;
        for index in 0..if parts.is_null() { 0 } else { made as usize } {
            parts.at(index).put(SmResource { sms: size, ..input })?;
        }
        count.put(made)?;
        rest.put_if(SmResource { sms: left, kind: if left == 0 { 0 } else { MULTIPROCESSORS }, ..input });
        Ok(())
    }

    fn cuDevResourceGenerateDesc(description: Out<Handle>, resources: In<SmResource>, count: c_uint) {
        let process = Process::get()?;
        let mut sms = 0;
        for index in 0..count as usize {
            let resource = resources.at(index)?;
            if resource.kind != MULTIPROCESSORS || resource.sms == 0 {
                return Err(Code::INVALID_RESOURCE_TYPE);
            }
            sms += resource.sms;
        }
        if sms == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = process.state();
        let handle = state.handles.next();
        state.greens.descriptions.insert(handle, sms);
        description.put(handle)
    }

    /// Keeps the primary context, as documented.
    fn cuGreenCtxCreate(green: Out<Handle>, description: Handle, device: c_int, flags: c_uint) {
        let process = Process::get()?;
        let (index, device) = process.device(device)?;
        if green.is_null() || flags != DEFAULT_STREAM {
            return Err(Code::INVALID_VALUE);
        }
        let sms = process.state().greens.descriptions.get(&description).copied();
        let sms = sms.ok_or(Code::INVALID_VALUE)?;
        if sms > device.info.sms {
            return Err(Code::INVALID_RESOURCE_CONFIGURATION);
        }
        super::primary::retain(process, index)?;
        let context = process.create_context(index, 0, None)?;
        let mut state = process.state();
        state.context_mut(context)?.sms = Some(sms);
        let handle = state.handles.next();
        state.greens.greens.insert(handle, Green { device: index, context, sms });
        green.put(handle)
    }

    fn cuGreenCtxDestroy(green: Handle) {
        let process = Process::get()?;
        let gone = process.state().greens.greens.remove(&green).ok_or(Code::INVALID_HANDLE)?;
        process.destroy_context(gone.context)?;
        super::primary::release(c_int::try_from(gone.device).unwrap_or(c_int::MAX))
    }

    fn cuCtxFromGreenCtx(context: Out<Handle>, green: Handle) {
        let found = Process::get()?.state().greens.get(green)?.context;
        context.put(found)
    }

    fn cuGreenCtxGetId(green: Handle, id: Out<u64>) {
        Process::get()?.state().greens.get(green)?;
        id.put(green)
    }

    /// Streams of green contexts must not wait for the default one.
    fn cuGreenCtxStreamCreate(stream: Out<Handle>, green: Handle, flags: c_uint, priority: c_int) {
        let process = Process::get()?;
        let found = process.state().greens.get(green)?;
        if stream.is_null() || flags != crate::contexts::NON_BLOCKING {
            return Err(Code::INVALID_VALUE);
        }
        super::stream::create_in(process, found.context, stream, flags, priority)
    }

    fn cuStreamGetGreenCtx(stream: Handle, green: Out<Handle>) {
        let process = Process::get()?;
        let (_, context) = process.lane(stream, false)?;
        let found = process.state().greens.of_context(context).unwrap_or(0);
        green.put(found)
    }

    fn cuGreenCtxRecordEvent(green: Handle, event: Handle) {
        let context = Process::get()?.state().greens.get(green)?.context;
        record_all(context, event)
    }

    fn cuGreenCtxWaitEvent(green: Handle, event: Handle) {
        let context = Process::get()?.state().greens.get(green)?.context;
        wait_all(context, event)
    }

    fn cuCtxRecordEvent(context: Handle, event: Handle) { record_all(context, event) }
    fn cuCtxWaitEvent(context: Handle, event: Handle) { wait_all(context, event) }
}

fn tell(resource: Out<SmResource>, kind: c_int, sms: u32, compute: (i32, i32)) -> Answer {
    if kind != MULTIPROCESSORS {
        return Err(Code::INVALID_RESOURCE_TYPE);
    }
    let (least_part, alignment) = steps(compute);
    resource.put(SmResource {
        kind,
        padding: [0; 92],
        sms,
        least_part,
        alignment,
        spare: [0; 36],
    })
}

/// The event happens once all that the context has to do is done.
fn record_all(context: Handle, event: Handle) -> Answer {
    let process = Process::get()?;
    let state = process.state();
    let lane = state.context(context)?.legacy;
    let id = state.events.get(&event).ok_or(Code::INVALID_HANDLE)?.id;
    drop(state);
    process.state().captures.refuse_context(context)?;
    let all = process.player.timeline().last_of_context(context);
    process.player.submit(lane, Work::Stamp(id), all).map(drop)
}

/// What the context is given from here on waits for the event.
fn wait_all(context: Handle, event: Handle) -> Answer {
    let process = Process::get()?;
    let id = {
        let state = process.state();
        state.context(context)?;
        state.events.get(&event).ok_or(Code::INVALID_HANDLE)?.id
    };
    process.state().captures.refuse_context(context)?;
    let Some(ticket) = process.player.timeline().recorded(id) else {
        return Ok(());
    };
    let lanes: Vec<_> = process
        .player
        .timeline()
        .last_of_context(context)
        .into_iter()
        .map(|last| last.lane)
        .collect();
    for lane in lanes {
        process.player.submit(lane, Work::Wait, vec![ticket])?;
    }
    Ok(())
}
