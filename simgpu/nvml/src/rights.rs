//! What this process may do, as `SIMGPU_NO_PERMISSION` says: everything, if it is not set.
//!
//! A list with commas of the rights that it lacks: `config` (create and destroy instances), `mode` (change MIG mode,
//! reset), `monitor` (see all instances, and the memory of a GPU with MIG on). `1` is `config,mode`: a user without the
//! capability and without root.

use crate::code::Code;
use crate::control::remember;

/// A right that a driver asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Right {
    Config,
    Mode,
    Monitor,
}

/// `NO_PERMISSION` if this process lacks the right.
pub(crate) fn may(right: Right) -> Result<(), Code> {
    let lacks = std::env::var("SIMGPU_NO_PERMISSION").unwrap_or_default();
    let lacking = read(&lacks).map_err(|line| remember(line, Code::InvalidArgument))?;
    if lacking.contains(&right) {
        Err(Code::NoPermission)
    } else {
        Ok(())
    }
}

/// Refuses a value that is not understood.
pub(crate) fn understood() -> Result<(), Code> {
    match may(Right::Monitor) {
        Err(Code::NoPermission) => Ok(()),
        answer => answer,
    }
}

fn read(list: &str) -> Result<Vec<Right>, String> {
    if list == "1" {
        return Ok(vec![Right::Config, Right::Mode]);
    }
    list.split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty() && *word != "0")
        .map(|word| match word {
            "config" => Ok(Right::Config),
            "mode" => Ok(Right::Mode),
            "monitor" => Ok(Right::Monitor),
            _ => Err(format!(
                "SIMGPU_NO_PERMISSION: `{word}` is none of config, mode, monitor (1 = config,mode)"
            )),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read_from_a_list() {
        assert_eq!(read(""), Ok(vec![]));
        assert_eq!(read("1"), Ok(vec![Right::Config, Right::Mode]));
        assert_eq!(read("monitor, mode"), Ok(vec![Right::Monitor, Right::Mode]));
        let line = "SIMGPU_NO_PERMISSION: `root` is none of config, mode, monitor (1 = config,mode)";
        assert_eq!(read("mode,root"), Err(line.to_owned()));
    }
}
