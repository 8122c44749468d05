//! `migm sim`: simulated GPUs for a shell.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use super::batch::scale;
use super::{Failure, print_text};
use crate::control::paths::private_socket;
use crate::node::sim::{SimulatedGpu, objects};

/// Make simulated GPUs, which programs meet instead of a driver
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  eval \"$(migm sim env --gpu a100-40gb --mig --time-scale 0.1)\"
  migm run -- migm play decoder --iterations 200
  migm sim clear")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a simulated GPU and print the lines that put a shell on it
    Env {
        /// A model, with :N for several
        #[arg(long, value_name = "G[:N]", default_value = "a100-40gb")]
        gpu: String,
        /// With MIG on
        #[arg(long)]
        mig: bool,
        /// Driver version, or its branch alone (535) [default: 580.82.07]
        #[arg(long, value_name = "VERSION", env = "SIMGPU_DRIVER")]
        driver: Option<String>,
        /// Wall seconds per simulated second
        #[arg(long, value_name = "X", env = "SIMGPU_TIME_SCALE", default_value = "1", value_parser = scale)]
        time_scale: f64,
    },
    /// Set what goes wrong on the simulated GPUs of this shell
    Faults {
        /// As SIMGPU_FAULTS (docs/environment.md): "create-gi@3=in-use;gpu1/20s=lost"; empty for none
        #[arg(value_name = "FAULTS")]
        faults: String,
        /// Which simulated machine
        #[arg(long, value_name = "ID", env = "SIMGPU_ID")]
        id: String,
    },
    /// Remove simulated GPUs that no process or shell uses any more
    Clear,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let links = links()?;
    match &args.command {
        Command::Env {
            gpu,
            mig,
            driver,
            time_scale,
        } => {
            // A model that is not known is a wrong argument; its line names those that are.
            let made = SimulatedGpu::create_under(&links, gpu, *mig, *time_scale, driver.as_deref());
            let made = made.map_err(Failure::input)?;
            // As long as the shell that asked for it.
            made.keep_for(shell()).map_err(Failure::no_gpu)?;
            let mut path = links.display().to_string();
            if let Ok(before) = std::env::var("LD_LIBRARY_PATH")
                && !before.is_empty()
                && !before.split(':').any(|part| part == path)
            {
                path = format!("{path}:{before}");
            }
            let mut lines = vec![
                ("SIMGPU_ID", made.id().to_owned()),
                ("SIMGPU_TIME_SCALE", time_scale.to_string()),
                ("LD_LIBRARY_PATH", path),
            ];
            lines.extend(socket(made.id()).map(|socket| ("MIGM_SOCKET", socket)));
            let text: String = lines
                .iter()
                .map(|(name, value)| format!("export {name}={}\n", quoted(value)))
                .collect();
            print_text(&text)?;
        }
        Command::Faults { faults, id } => SimulatedGpu::attach(&links, id)
            .and_then(|gpu| gpu.set_faults(faults))
            .map_err(Failure::input)?,
        Command::Clear => SimulatedGpu::clear(&links).map_err(Failure::no_gpu)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The folder with the names that the loader looks for; it stays, for the shells that it was printed to.
fn links() -> Result<PathBuf, Failure> {
    let folder = private_socket().with_file_name("simgpu");
    let made = objects().and_then(|objects| objects.link(&folder, true));
    made.map(|()| folder).map_err(Failure::no_gpu)
}

/// Where the supervisor of these GPUs listens, beside those of other machines. `None` where the user has chosen a place.
fn socket(id: &str) -> Option<String> {
    let place = |id: &str| private_socket().with_file_name(format!("simgpu-{id}.sock"));
    let given = std::env::var_os("MIGM_SOCKET").filter(|given| !given.is_empty());
    let is_of_another = |given| {
        let other = std::env::var("SIMGPU_ID").unwrap_or_default();
        place(&other).as_os_str() == given
    };
    let ours = given.is_none_or(is_of_another);
    ours.then(|| place(id).display().to_string())
}

/// The shell that asked. A command substitution runs in a fork of it, which ends with the command and can be
/// known by its command line, the same as the shell's.
fn shell() -> u32 {
    let line = |pid: u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .ok()
            .filter(|line| !line.is_empty())
    };
    let parent = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok())
    };
    let mut shell = std::os::unix::process::parent_id();
    while let Some(above) = parent(shell)
        && line(above).is_some()
        && line(above) == line(shell)
    {
        shell = above;
    }
    shell
}

/// For sh: nothing inside single quotes means anything but a single quote.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sh_reads_back_what_was_quoted() {
        for value in ["", "a b", "it's $HOME", "\"`x`\\", "a\nb"] {
            let script = format!("printf %s {}", quoted(value));
            let output = std::process::Command::new("sh")
                .args(["-c", &script])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
        }
    }
}
