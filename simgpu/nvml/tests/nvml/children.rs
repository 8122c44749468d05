//! Processes that a test starts.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::bench::Bench;

impl Bench {
    /// A process that attaches to what `CUDA_VISIBLE_DEVICES` names, and holds `bytes`.
    pub(crate) fn tenant(&self, visible: Option<&str>, bytes: u64) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "children::child_that_holds_memory", "--nocapture"]);
        command
            .env("SIMGPU_ID", self.id())
            .env("TEST_BYTES", bytes.to_string());
        if let Some(visible) = visible {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        wait_for_line(&mut child, "holding");
        child
    }
}

/// Not a test by itself: what [`Bench::tenant`] runs.
#[test]
fn child_that_holds_memory() {
    let Ok(bytes) = std::env::var("TEST_BYTES") else {
        return;
    };
    let machine = simgpu::Machine::open().unwrap();
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let device = machine.visible(visible.as_deref())[0];
    let tenant = machine.attach(device, 0).unwrap();
    tenant.charge(bytes.parse().unwrap()).unwrap();
    println!("holding");
    std::thread::sleep(Duration::from_secs(600));
}

/// Reads what a child prints until a line has `text` in it.
pub(crate) fn wait_for_line(child: &mut Child, text: &str) {
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        let read = std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        assert_ne!(read, 0, "the child ended");
    }
    child.stdout = Some(output.into_inner());
}

/// Runs a test again in a process of its own that has a variable set: the library reads its environment, which only
/// a fresh process can have changed safely.
pub(crate) fn again_with(variable: &str, value: &str, test: &str) {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", test]).env(variable, value);
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

pub(crate) fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}
