//! However a program finds the driver's functions, it finds the hooks, and each allocation counts once.

use crate::peer::{Manner, Peer, eventually};
use crate::programs::{Program, folder, library};

const MIB: u64 = 1 << 20;

/// Three allocations of 1 MiB, two frees: what each of these programs does.
fn expect_three_and_two(peer: &Peer) {
    let reading = peer.page.read()[0];
    assert_eq!((reading.allocations, reading.frees), (3, 2), "{reading:?}");
    assert_eq!((reading.reserved, reading.reserved_peak), (MIB, 3 * MIB));
    assert_eq!(reading.requested, 3 * MIB);
    assert_eq!(reading.uuid, [0xa0; 16]);
    assert_eq!(peer.hellos().len(), 1);
}

fn way(name: &str) -> Program {
    Program::plain("ways_in", &[name], &["-ldl"])
}

fn comes_in(program: Program) {
    let peer = Peer::new(Manner::GivesPage);
    program.under(&peer).run();
    expect_three_and_two(&peer);
}

#[test]
fn linked_with_the_driver() {
    comes_in(Program::linked("linked", &[]));
}

#[test]
fn dlopen_and_dlsym() {
    comes_in(way("dlsym"));
}

#[test]
fn dlvsym_with_a_version() {
    comes_in(way("dlvsym"));
}

#[test]
fn dlsym_of_the_whole_process() {
    comes_in(way("global"));
}

#[test]
fn get_proc_address_with_four_arguments() {
    comes_in(way("proc1"));
}

#[test]
fn get_proc_address_with_five_arguments_and_the_drivers_own_not_found() {
    comes_in(way("proc2"));
}

#[test]
fn get_proc_address_asked_for_itself() {
    comes_in(way("self"));
}

#[test]
fn get_proc_address_with_the_per_thread_flag() {
    let peer = Peer::new(Manner::GivesPage);
    way("perthread").under(&peer).run();
    expect_three_and_two(&peer);
}

#[test]
fn a_driver_whose_proc_addresses_are_not_those_of_dlsym() {
    comes_in(way("proc2").env("FAKE_PROC", "1"));
    comes_in(way("self").env("FAKE_PROC", "1"));
}

#[test]
fn an_unknown_name_stays_unknown_and_dlerror_says_so() {
    let with_us = way("unknown").run();
    assert_eq!(with_us, way("unknown").bare().run());
}

#[test]
fn an_old_driver_gets_no_functions_from_us() {
    comes_in(way("old").with_old_driver());
}

#[test]
fn rtld_next_in_another_wrapper_finds_the_next_one_not_itself() {
    std::fs::write(folder().join("v1"), "V1 { global: answer; };").unwrap();
    let wrapped = library("wrapped", &["-Wl,--version-script,v1"]);
    let wrapper = library("wrapper", &["-ldl"]);
    let program =
        || Program::plain("call_wrapped", &[], &[wrapped.to_str().unwrap()]).with_preload(wrapper.clone());
    program().bare().run();
    program().run();
}

#[test]
fn trampolines_of_the_drivers_names_do_not_recurse() {
    let trampolines = library("trampolines", &["-ldl"]);
    let flags = [trampolines.to_str().unwrap(), "-ldl"];
    let peer = Peer::new(Manner::GivesPage);
    Program::plain("use_trampolines", &["loaded"], &flags)
        .under(&peer)
        .run();
    expect_three_and_two(&peer);
}

#[test]
fn a_trampoline_may_be_the_one_that_loads_the_driver() {
    let trampolines = library("trampolines", &["-ldl"]);
    let flags = [trampolines.to_str().unwrap(), "-ldl"];
    let peer = Peer::new(Manner::GivesPage);
    Program::plain("use_trampolines", &[], &flags).under(&peer).run();
    expect_three_and_two(&peer);
}

/// What the supervisor hears that cannot be seen, once the process has gone.
fn causes(peer: &Peer) -> Vec<String> {
    eventually("the connection ends", || peer.ended() == 1);
    let cause = |event| match event {
        migm_shared::report::Event::Blind { cause } => Some(cause),
        _ => None,
    };
    peer.events().into_iter().filter_map(cause).collect()
}

#[test]
fn a_form_that_came_after_us_is_the_drivers_and_said_so_once() {
    let peer = Peer::new(Manner::GivesPage);
    way("newer").under(&peer).run();
    let said = "the driver's cuMemAlloc for version 99000 has a form that the interposer does not know";
    assert_eq!(causes(&peer), [said]);
    assert_eq!(peer.page.read()[0].reserved, MIB);
}

/// Loads a library in some way, and returns what is said of it.
fn blind(library_name: &str, flags: &[&str], way: &str) -> (Peer, Vec<String>) {
    let driver = crate::programs::driver(false).join("libcuda.so.1");
    let flags = [&["-ldl", driver.to_str().unwrap()], flags].concat();
    let path = crate::programs::library_as("deepbind", library_name, &flags);
    let peer = Peer::new(Manner::GivesPage);
    let mut child = Program::linked("load", &[path.to_str().unwrap(), way])
        .under(&peer)
        .spawn();
    let status = child.wait().unwrap();
    assert!(status.success(), "{library_name} {way}: {status}");
    let causes = causes(&peer);
    (peer, causes)
}

#[test]
fn a_library_with_deepbind_is_not_seen_and_said_so_once() {
    for (name, flags) in [("eager", &["-Wl,-z,now"][..]), ("lazy", &["-Wl,-z,lazy"])] {
        let (peer, causes) = blind(name, flags, "deep");
        let [cause] = &causes[..] else {
            panic!("{name}: {causes:?}")
        };
        assert!(
            cause.contains(&format!("lib{name}.so")) && cause.contains("RTLD_DEEPBIND"),
            "{cause}"
        );
        assert_eq!(
            peer.page.read()[0].reserved,
            1000,
            "the library's bytes are not there"
        );
    }
}

#[test]
fn a_library_with_deepbind_that_asks_dlsym_is_not_seen_and_said_so_once() {
    let (_, causes) = blind("asks", &["-DASKS", "-Wl,--as-needed"], "deep");
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert!(causes[0].contains("calls of dlsym"), "{causes:?}");
}

#[test]
fn a_library_loaded_as_usual_is_seen() {
    for (name, flags) in [("eager", &["-Wl,-z,now"][..]), ("lazy", &["-Wl,-z,lazy"])] {
        let (peer, causes) = blind(name, flags, "usual");
        assert!(causes.is_empty(), "{causes:?}");
        assert_eq!(peer.page.read()[0].reserved, 1000 + 234);
    }
}

#[test]
fn a_drivers_inner_library_keeps_its_own_functions() {
    let inner = library("trampolines", &["-ldl"]);
    Program::plain("inner", &[inner.to_str().unwrap()], &["-ldl"]).run();
}

#[test]
fn physical_memory_needs_no_context() {
    let peer = Peer::new(Manner::GivesPage);
    Program::linked("worker_thread", &[])
        .env("FAKE_DEVICES", "2")
        .under(&peer)
        .run();
    let reading = peer.page.read();
    let second = reading.iter().find(|device| device.uuid == [0xa1; 16]).unwrap();
    assert_eq!(second.reserved, 2 * MIB);
}

#[test]
fn a_driver_that_calls_itself_counts_once() {
    let peer = Peer::new(Manner::GivesPage);
    Program::linked("every_path", &[])
        .env("FAKE_NESTED", "1")
        .under(&peer)
        .run();
    let nested = peer.page.read()[0];
    let peer = Peer::new(Manner::GivesPage);
    Program::linked("every_path", &[]).under(&peer).run();
    assert_eq!(nested, peer.page.read()[0]);
}
