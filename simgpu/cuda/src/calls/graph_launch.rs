//! Executable graphs: make, launch, destroy; and the memory that they keep.

use std::ffi::{c_char, c_int};

use crate::abi::InstantiateParameters;
use crate::captures::refuse_in_capture;
use crate::code::{Answer, Code};
use crate::gate::{In, Out, entries};
use crate::graphs::{Executable, NodeWork};
use crate::handle::Handle;
use crate::pools::Level;
use crate::process::Process;
use crate::state::State;
use crate::timeline::{LaneId, Ticket, Work};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_*` that are known: free on launch, upload, device launch, node priorities.
const FLAGS: u64 = 15;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`
const DEVICE_LAUNCH: u64 = 4;

entries! {
    fn cuGraphInstantiate(
        executable: Out<Handle>, graph: Handle, node: Out<Handle>, log: Out<c_char>, room: usize,
    ) {
        instantiate_with_log(executable, graph, node, (log, room))
    }

    fn cuGraphInstantiate_v2(
        executable: Out<Handle>, graph: Handle, node: Out<Handle>, log: Out<c_char>, room: usize,
    ) {
        instantiate_with_log(executable, graph, node, (log, room))
    }

    fn cuGraphInstantiateWithFlags(executable: Out<Handle>, graph: Handle, flags: u64) {
        instantiate(executable, graph, flags)
    }

    fn cuGraphInstantiateWithParams(
        executable: Out<Handle>, graph: Handle, parameters: Out<InstantiateParameters>,
    ) {
        instantiate_with_parameters(executable, graph, parameters, false)
    }

    fn cuGraphInstantiateWithParams_ptsz(
        executable: Out<Handle>, graph: Handle, parameters: Out<InstantiateParameters>,
    ) {
        instantiate_with_parameters(executable, graph, parameters, true)
    }

    fn cuGraphExecGetFlags(executable: Handle, flags: Out<u64>) {
        let found = Process::get()?.state().graphs.executable(executable)?.flags;
        flags.put(found)
    }

    /// Launches that are on their way go on.
    fn cuGraphExecDestroy(executable: Handle) {
        let mut state = Process::get()?.state();
        let gone = state.graphs.executables.remove(&executable).ok_or(Code::INVALID_VALUE)?;
        if let Ok(graph) = state.graphs.get(gone.graph) {
            graph.executables = graph.executables.saturating_sub(1);
        }
        for address in gone.allocations().collect::<Vec<_>>() {
            state.drop_graph_block(address);
        }
        Ok(())
    }

    /// The form before CUDA 12: the node in question and the kind of failure apart.
    fn cuGraphExecUpdate(executable: Handle, graph: Handle, node: Out<Handle>, result: Out<c_int>) {
        let updated = update(executable, graph);
        node.put_if(0);
        result.put_if(update_result(updated));
        updated
    }

    /// `CUgraphExecUpdateResultInfo`: the kind of failure, and two nodes.
    fn cuGraphExecUpdate_v2(executable: Handle, graph: Handle, result: Out<[u64; 3]>) {
        let updated = update(executable, graph);
        result.put_if([u64::from(update_result(updated).unsigned_abs()), 0, 0]);
        updated
    }

    fn cuGraphUpload(executable: Handle, stream: Handle) { upload(executable, stream, false) }
    fn cuGraphUpload_ptsz(executable: Handle, stream: Handle) { upload(executable, stream, true) }
    fn cuGraphLaunch(executable: Handle, stream: Handle) { launch(executable, stream, false) }
    fn cuGraphLaunch_ptsz(executable: Handle, stream: Handle) { launch(executable, stream, true) }

    fn cuDeviceGraphMemTrim(device: c_int) {
        let process = Process::get()?;
        refuse_in_capture(process)?;
        let (index, _) = process.device(device)?;
        let timeline = process.player.now();
        let mut state = process.state();
        let needed = state.graphs.executables.values().filter_map(|one| {
            let is_on_its_way = one.launched.is_some_and(|ticket| !timeline.is_done(ticket));
            one.needs.get(index).copied().filter(|_| is_on_its_way)
        });
        let needed = needed.max().unwrap_or(0);
        let spare = state.memory.graphs.trim(index, needed)?;
        state.release(index, spare);
        Ok(())
    }

    fn cuDeviceGetGraphMemAttribute(device: c_int, attribute: c_int, value: Out<u64>) {
        let process = Process::get()?;
        let (index, _) = process.device(device)?;
        let mut state = process.state();
        let level = level(&mut state, index, attribute)?;
        let found = if attribute & 1 == 0 { level.current } else { level.high };
        value.put(found)
    }

    /// Only the high marks can be set, and only to 0: they start anew.
    fn cuDeviceSetGraphMemAttribute(device: c_int, attribute: c_int, value: In<u64>) {
        let process = Process::get()?;
        let (index, _) = process.device(device)?;
        let mut state = process.state();
        let level = level(&mut state, index, attribute)?;
        if attribute & 1 == 0 || value.get()? != 0 {
            return Err(Code::INVALID_VALUE);
        }
        level.reset();
        Ok(())
    }
}

/// `CUgraphMem_attribute`: used now, used at most, reserved now, reserved at most.
fn level(state: &mut State, device: usize, attribute: c_int) -> Answer<&mut Level> {
    let levels = state.memory.graphs.levels(device)?;
    match attribute {
        0 | 1 => Ok(&mut levels.used),
        2 | 3 => Ok(&mut levels.reserved),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn instantiate(executable: Out<Handle>, graph: Handle, flags: u64) -> Answer {
    let process = Process::get()?;
    if executable.is_null() || flags & !FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if flags & DEVICE_LAUNCH != 0 {
        // No kernel runs here that could launch it.
        return Err(Code::NOT_SUPPORTED);
    }
    let mut state = process.state();
    let found = state.graphs.get(graph)?;
    // A graph with memory nodes has one executable at a time, as documented.
    if found.has_memory_nodes() && found.executables > 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    found.executables += 1;
    let works = found.ordered();
    let made = Executable {
        graph,
        flags,
        works,
        launched: None,
        needs: Vec::new(),
    };
    for address in made.allocations() {
        state.memory.graphs.share(address);
    }
    let handle = state.handles.next();
    state.graphs.executables.insert(handle, made);
    executable.put(handle)
}

fn instantiate_with_log(
    executable: Out<Handle>,
    graph: Handle,
    node: Out<Handle>,
    (log, room): (Out<c_char>, usize),
) -> Answer {
    node.put_if(0);
    if room > 0 {
        log.put_if(0);
    }
    instantiate(executable, graph, 0)
}

fn instantiate_with_parameters(
    executable: Out<Handle>,
    graph: Handle,
    parameters: Out<InstantiateParameters>,
    per_thread: bool,
) -> Answer {
    /// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`
    const UPLOAD: u64 = 2;
    let mut told = parameters.as_in().get()?;
    if told.flags & UPLOAD != 0 {
        Process::get()?.lane(told.upload_stream, per_thread)?;
    }
    let made = instantiate(executable, graph, told.flags);
    told.error_node = 0;
    // CUDA_GRAPH_INSTANTIATE_SUCCESS, or CUDA_GRAPH_INSTANTIATE_ERROR
    told.result = c_int::from(made.is_err());
    parameters.put(told)?;
    made
}

fn update(executable: Handle, graph: Handle) -> Answer {
    let mut state = Process::get()?.state();
    let found = state.graphs.get(graph)?;
    let works = found.ordered();
    if found.has_memory_nodes() {
        // Allocations cannot be updated, as documented.
        return Err(Code::GRAPH_EXEC_UPDATE_FAILURE);
    }
    let executable = state.graphs.executable(executable)?;
    if !executable.is_like(&works) {
        return Err(Code::GRAPH_EXEC_UPDATE_FAILURE);
    }
    executable.works = works;
    Ok(())
}

/// `CUgraphExecUpdateResult`: success, an error of the call, or another topology.
fn update_result(updated: Answer) -> c_int {
    match updated {
        Ok(()) => 0,
        Err(Code::GRAPH_EXEC_UPDATE_FAILURE) => 2,
        Err(_) => 1,
    }
}

/// Uploading takes what the next launch needs.
fn upload(executable: Handle, stream: Handle, per_thread: bool) -> Answer {
    let process = Process::get()?;
    process.lane(stream, per_thread)?;
    let mut state = process.state();
    let steps = state.launch_steps(executable)?;
    state.reserve_for(&steps).map(drop)
}

/// The nodes run one after another, also those that could run side by side.
fn launch(executable: Handle, stream: Handle, per_thread: bool) -> Answer {
    let process = Process::get()?;
    let place = process.capture_place(stream, per_thread)?;
    let as_node = |state: &mut State| {
        let found = state.graphs.executable(executable)?;
        if found.allocations().next().is_some() {
            return Err(Code::NOT_SUPPORTED);
        }
        Ok(NodeWork::Graph(std::sync::Arc::clone(&found.works)))
    };
    if process.capture(place, as_node)?.is_some() {
        return Ok(());
    }
    let mut state = process.state();
    let steps = state.launch_steps(executable)?;
    let needs = state.reserve_for(&steps)?;
    state.memory.graphs.play(&steps);
    let works = std::sync::Arc::clone(&state.graphs.executable(executable)?.works);
    drop(state);
    let mut last = process.player.submit(place.lane, Work::Wait, Vec::new())?;
    for work in works.iter() {
        last = run(process, place.lane, work, last)?;
    }
    if let Ok(executable) = process.state().graphs.executable(executable) {
        executable.launched = Some(last);
        executable.needs = needs;
    }
    Ok(())
}

/// Submits a node's work; answers its end.
fn run(process: &Process, lane: LaneId, work: &NodeWork, last: Ticket) -> Answer<Ticket> {
    let submit = |work, after| process.player.submit(lane, work, after);
    match work {
        NodeWork::Kernel(kernel) => submit(kernel.work(), Vec::new()),
        NodeWork::Copy(transfer) => {
            let ticket = submit(transfer.work(process).unwrap_or(Work::Wait), Vec::new())?;
            transfer.move_bytes();
            Ok(ticket)
        }
        NodeWork::Fill(fill) => {
            fill.write();
            match fill {
                crate::fills::Fill::Device(seconds) => submit(Work::Pause(*seconds), Vec::new()),
                _ => Ok(last),
            }
        }
        NodeWork::Call(call) => submit(Work::Call(call.clone()), Vec::new()),
        NodeWork::Record(event) => submit(Work::Stamp(*event), Vec::new()),
        NodeWork::WaitFor(event) => {
            let recorded = process.player.timeline().recorded(*event);
            submit(Work::Wait, recorded.into_iter().collect())
        }
        NodeWork::Graph(works) => works
            .iter()
            .try_fold(last, |last, work| run(process, lane, work, last)),
        NodeWork::Empty | NodeWork::Allocate(_) | NodeWork::Free(_) => Ok(last),
    }
}
