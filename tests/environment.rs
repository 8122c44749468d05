//! What `migm run` sets in the program's environment when asked to, and how it explains that.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod support;

use std::process::Command;

use support::Place;

/// What the program sees of the frameworks' variables and of ours.
const SHOW: &str =
    r#"echo "$XLA_PYTHON_CLIENT_PREALLOCATE $TF_FORCE_GPU_ALLOW_GROWTH $MIGM_ITERATION $MIGM_CAP""#;

fn seen(place: &Place, options: &[&str], set: &[(&str, &str)]) -> String {
    let mut command: Command = place.migm(&["run"]);
    for name in [
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "MIGM_ITERATION",
    ] {
        command.env_remove(name);
    }
    command
        .args(options)
        .args(["--", "sh", "-c", SHOW])
        .envs(set.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn nothing_is_set_for_frameworks_unless_asked_for_and_the_users_value_wins() {
    // On a slice of a MIG GPU: a soft slice comes with a cap.
    let place = Place::simulated(&["--gpu", "a100-40gb", "--mig"]);
    assert_eq!(seen(&place, &[], &[]), "   \n");
    assert_eq!(seen(&place, &["--grow-on-demand"], &[]), "false true  \n");
    let mine = [("XLA_PYTHON_CLIENT_PREALLOCATE", "true")];
    assert_eq!(seen(&place, &["--grow-on-demand"], &mine), "true true  \n");
    assert_eq!(
        seen(&place, &["--iteration", "copy-to-host:2"], &[]),
        "  copy-to-host:2 \n"
    );
    let mine = [("MIGM_ITERATION", "off")];
    assert_eq!(seen(&place, &[], &mine), "  off \n");
    assert_eq!(
        seen(&place, &["--cap", "1Gi:300Mi"], &[]),
        "   1073741824:314572800\n"
    );
}

#[test]
fn nvtx_is_told_of_the_interposer_on_request_and_the_users_own_listener_stays() {
    let place = Place::simulated(&["--gpu", "a100-40gb"]);
    let listener = |options: &[&str], theirs: Option<&str>| {
        let mut command = place.migm(&["run"]);
        command
            .env_remove("MIGM_ITERATION")
            .env_remove("NVTX_INJECTION64_PATH");
        command.envs(theirs.map(|theirs| ("NVTX_INJECTION64_PATH", theirs)));
        command
            .args(options)
            .args(["--", "sh", "-c", r#"echo "$NVTX_INJECTION64_PATH""#]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let said = text(output.stderr);
        // The runner may have other things to say, of the machine.
        let said: Vec<_> = said
            .lines()
            .filter(|line| line.contains("NVTX"))
            .map(str::to_owned)
            .collect();
        (text(output.stdout), said)
    };
    let ranges = ["--iteration", "nvtx-range"];
    assert_eq!(listener(&[], None).0, "\n");
    let (ours, said) = listener(&ranges, None);
    assert!(ours.ends_with("/libmigm_interposer.so\n"), "{ours}");
    assert_eq!(said, [""; 0]);
    let (theirs, said) = listener(&ranges, Some("/opt/profiler.so"));
    assert_eq!(theirs, "/opt/profiler.so\n");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("/opt/profiler.so, yours"), "{said:?}");
    assert_eq!(listener(&[], Some("/opt/profiler.so")), (theirs, Vec::new()));
}

#[test]
fn explain_lists_all_and_runs_nothing() {
    let place = Place::without_gpu();
    let ran = place.path().join("ran");
    let output = place
        .migm(&[
            "run",
            "--explain",
            "--grow-on-demand",
            "--",
            "touch",
            ran.to_str().unwrap(),
        ])
        .env("TF_FORCE_GPU_ALLOW_GROWTH", "mine")
        .env_remove("XLA_PYTHON_CLIENT_PREALLOCATE")
        .output()
        .unwrap();
    assert!(output.status.success(), "no GPU is needed: {output:?}");
    assert!(!ran.exists());
    let said = String::from_utf8(output.stdout).unwrap();
    for name in [
        "CUDA_VISIBLE_DEVICES",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "MIGM_SOCKET",
        "MIGM_PAGE",
        "MIGM_ATTEMPT",
        "MIGM_ITERATION",
        "XLA_PYTHON_CLIENT_PREALLOCATE  false: JAX",
        "TF_FORCE_GPU_ALLOW_GROWTH      mine, yours: TensorFlow",
    ] {
        assert!(said.contains(name), "{name}: {said}");
    }
    let alone = place.migm(&["run", "--explain"]).output().unwrap();
    assert!(alone.status.success(), "no program is needed: {alone:?}");
}

#[test]
fn an_unknown_event_is_refused_before_anything_runs() {
    let place = Place::without_gpu();
    for (given, set) in [(Some("launches"), None), (None, Some("launches"))] {
        let mut command = place.migm(&["run"]);
        if let Some(given) = given {
            command.args(["--iteration", given]);
        }
        if let Some(set) = set {
            command.env("MIGM_ITERATION", set);
        }
        let output = command.args(["--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("`launches` marks no iteration"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

/// The files of a folder of code, and what is below it.
fn code(folder: &std::path::Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            code(&path, found);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            found.push(text);
        }
    }
}

/// The variables of ours that these files name: in quotes, or as a shell does.
fn named(files: &[String]) -> std::collections::BTreeSet<&str> {
    let mut found = std::collections::BTreeSet::new();
    for text in files {
        for start in ["\"", "`", "$", "{"]
            .iter()
            .flat_map(|before| text.match_indices(before))
        {
            let after = &text[start.0 + 1..];
            let end = after.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
            let name = &after[..end.unwrap_or(after.len())];
            if ["MIGM_", "SIMGPU_"]
                .iter()
                .any(|ours| name.len() > ours.len() && name.starts_with(ours))
            {
                found.insert(name);
            }
        }
    }
    found
}

#[test]
fn each_variable_is_in_the_documentation_and_each_documented_one_is_read() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/environment.md")).unwrap();
    let listed = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let listed = [listed.collect::<Vec<_>>().join(" ")];
    let listed = named(&listed);

    let mut files = Vec::new();
    for folder in ["supervisor/src", "interposer/src", "shared/src", "simgpu", ".ci"] {
        code(&root.join(folder), &mut files);
    }
    let read = named(&files);
    assert!(read.len() > 20, "the code was not read: {read:?}");
    // What tests say to themselves is nobody else's business.
    let kept_quiet: Vec<_> = read
        .difference(&listed)
        .filter(|name| !name.contains("_TEST_"))
        .collect();
    assert!(
        kept_quiet.is_empty(),
        "not in docs/environment.md: {kept_quiet:?}"
    );

    code(&root.join("tests"), &mut files);
    let read = named(&files);
    let made_up: Vec<_> = listed.difference(&read).collect();
    assert!(made_up.is_empty(), "read by nobody: {made_up:?}");
}
