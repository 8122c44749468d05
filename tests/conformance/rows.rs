//! Each path to device memory: the page after each step of a program.

use std::collections::BTreeMap;
use std::path::Path;

use migm_shared::page::{Class, CounterPage};

use crate::peer::{Manner, Peer};
use crate::programs::{Bench, Running, built, is_real, leave_out, program};

/// The status of a program whose driver or device lacks what it needs.
const LACKS: i32 = 77;

/// What a program said at a step: its name, and numbers by name.
struct Said {
    label: String,
    numbers: BTreeMap<String, i64>,
}

impl Said {
    fn parse(line: &str) -> Self {
        let mut words = line.strip_prefix("at ").unwrap().split(' ');
        let label = words.next().unwrap().to_owned();
        let numbers = words
            .map(|word| {
                let (name, number) = word.split_once('=').unwrap();
                (name.to_owned(), number.parse().unwrap())
            })
            .collect();
        Self { label, numbers }
    }

    fn of(&self, name: &str) -> i64 {
        self.numbers
            .get(name)
            .copied()
            .unwrap_or_else(|| panic!("no {name}"))
    }

    /// Compares with the page, over all devices.
    fn check(&self, row: &str, page: &CounterPage) {
        let readings = page.read();
        let mut reserved = 0;
        for class in Class::ALL {
            let name = format!("{class:?}").to_lowercase();
            let live: u64 = readings.iter().map(|reading| reading.live[class as usize]).sum();
            let live = i64::try_from(live).unwrap();
            assert_eq!(live, self.of(&name), "{row}, {}: {name}", self.label);
            reserved += if class.is_reserved() { live } else { 0 };
        }
        let told: u64 = readings.iter().map(|reading| reading.reserved).sum();
        assert_eq!(
            i64::try_from(told).unwrap(),
            reserved,
            "{row}, {}: reserved",
            self.label
        );
        let (charged, least, most) = (self.of("charged"), self.of("least"), self.of("most"));
        assert!(
            (least..=most).contains(&charged),
            "{row}, {}: cuMemGetInfo changed by {charged}, not {least} to {most}",
            self.label
        );
    }
}

/// Runs a program, comparing at each step; answers its last line, or `None` if it was left out.
pub fn follow(row: &str, program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Option<String> {
    let (bench, peer) = (Bench::new(), Peer::new(Manner::GivesPage));
    let mut command = bench.command(program);
    command
        .args(arguments)
        .env("LD_PRELOAD", built("libmigm_interposer.so"))
        .env("MIGM_SOCKET", peer.path())
        .env("MIGM_ATTEMPT", "1.1.1")
        .envs(environment.iter().copied());
    let mut running = Running::start(command);
    let (mut steps, mut last) = (0, None);
    while let Some(line) = running.line() {
        if line.starts_with("at ") {
            Said::parse(&line).check(row, &peer.page);
            steps += 1;
            running.go();
        } else {
            last = Some(line);
        }
    }
    let ended = running.end();
    if ended.status == Some(LACKS) && is_real() {
        leave_out(&format!(
            "{row}: {}",
            ended.stderr.trim_start_matches("left out: ").trim()
        ));
        return None;
    }
    assert_eq!(ended.status, Some(0), "{row}: {}", ended.stderr);
    assert!(steps > 0, "{row} had no step");
    last
}

macro_rules! rows {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(
            #[test]
            fn $name() {
                follow(stringify!($name), &program("paths"), &[stringify!($name)], &[]);
            }
        )*
    };
}

rows! {
    alloc alloc_v1 pitch managed host array array_v1 async_ pool vmm vmm_import ipc graph capture external green
    context refused threads
}

#[test]
fn every_row_of_the_program_is_a_test() {
    let output = std::process::Command::new(program("paths")).output().unwrap();
    let rows = String::from_utf8(output.stdout).unwrap();
    assert_eq!(rows.lines().collect::<Vec<_>>(), NAMES);
}

#[test]
fn what_cu_get_proc_address_finds_is_counted_the_same() {
    for row in ["alloc", "pitch", "array", "async_", "vmm", "capture"] {
        follow(row, &program("paths"), &[row], &[("LOOKUP", "proc")]);
    }
}
