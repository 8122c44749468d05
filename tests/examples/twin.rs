//! A program's twin over the driver API, played by a process of its own.

use std::process::Command;

use migm_supervisor::play::{self, PlayArgs};

/// The environment variable that makes this test binary play a program: its name and arguments, in JSON.
const PLAY: &str = "MIGM_TEST_PLAY";

/// A process that plays a program's twin: this test binary once more, since the loader reads where libcuda is
/// when a process starts.
pub fn twin(name: &str, given: PlayArgs) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let numbers = [
        given.size,
        given.iterations,
        given.start,
        given.growth,
        given.jump,
        given.at,
    ];
    command
        .args(["--exact", "twin::plays_a_twin", "--nocapture", "--test-threads=1"])
        .env(PLAY, serde_json::json!([name, numbers]).to_string());
    command
}

#[test]
#[expect(clippy::exit, reason = "the process is the program that is played")]
fn plays_a_twin() {
    let Ok(order) = std::env::var(PLAY) else { return };
    let (name, [size, iterations, start, growth, jump, at]): (String, [Option<u64>; 6]) =
        serde_json::from_str(&order).unwrap();
    let code = match play::play(
        &name,
        PlayArgs {
            size,
            iterations,
            start,
            growth,
            jump,
            at,
        },
    ) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("play: {error}");
            error.exit_code()
        }
    };
    std::process::exit(code.into());
}
