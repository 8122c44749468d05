use super::*;
use std::os::unix::fs::PermissionsExt;

use crate::control::{Outcome, Past};

fn entry(number: u64, last_run: u64) -> Entry {
    Entry {
        family: "f0".into(),
        signature: format!("{number:016x}"),
        program: "/bin/p".into(),
        words: vec!["#".into()],
        environment: Vec::new(),
        #[expect(clippy::cast_precision_loss, reason = "small")]
        numbers: vec![number as f64],
        content: "c".into(),
        gpu: "NVIDIA A100".into(),
        simulated: true,
        last_run,
        past: Past {
            paces: Vec::new(),
            runs: 1,
            done: 0,
            peaks: Vec::new(),
            at_least: number,
            iterations: 0,
            law: None,
            outcome: Outcome::Oom,
        },
    }
}

fn history() -> (tempfile::TempDir, History) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("migm/history.jsonl");
    (folder, History::new(path))
}

#[test]
fn what_is_added_is_read_together_and_is_the_users_alone() {
    let (_folder, history) = history();
    assert_eq!(history.read().unwrap(), (Vec::new(), 0));
    for last_run in [5, 9] {
        assert_eq!(history.add(&entry(1, last_run)).unwrap(), None);
    }
    history.add(&entry(2, 3)).unwrap();
    let (entries, unread) = history.read().unwrap();
    let shown: Vec<_> = entries
        .iter()
        .map(|entry| (entry.past.at_least, entry.past.runs, entry.last_run))
        .collect();
    assert_eq!((shown, unread), (vec![(2, 1, 3), (1, 2, 9)], 0));
    assert_eq!(history.family("f0").unwrap().len(), 2);
    assert_eq!(history.family("f").unwrap().len(), 0);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(history.path()), mode(history.folder())), (0o600, 0o700));
}

#[test]
fn a_torn_last_line_is_passed_over_and_ended_by_the_next_writer() {
    let (_folder, history) = history();
    history.add(&entry(1, 1)).unwrap();
    let whole = fs::read(history.path()).unwrap();
    let torn: Vec<u8> = [&whole[..], &whole[40..120]].concat();
    fs::write(history.path(), &torn).unwrap();
    assert_eq!(history.read().unwrap().0.len(), 1);
    history.add(&entry(2, 2)).unwrap();
    let (entries, unread) = history.read().unwrap();
    assert_eq!((entries.len(), unread), (2, 1));
    // A line that lacks nothing but its end is kept.
    let mut text = fs::read(history.path()).unwrap();
    assert_eq!(text.pop(), Some(b'\n'));
    fs::write(history.path(), &text).unwrap();
    history.add(&entry(3, 3)).unwrap();
    assert_eq!(history.read().unwrap().0.len(), 3);
}

#[test]
fn a_file_of_another_version_is_set_aside_and_kept() {
    let (_folder, history) = history();
    fs::create_dir_all(history.folder()).unwrap();
    let other = "{\"migm_history\":2}\n{\"else\":1}\n";
    fs::write(history.path(), other).unwrap();
    let said = history.read().unwrap_err().to_string();
    assert!(said.contains("it has version 2, and this is version 1"), "{said}");
    assert_eq!(fs::read_to_string(history.path()).unwrap(), other);
    let aside = history.add(&entry(1, 1)).unwrap().unwrap();
    assert_eq!(fs::read_to_string(&aside).unwrap(), other);
    assert_eq!(history.read().unwrap().0.len(), 1);
    // Not even the second one takes the first one's place.
    fs::write(history.path(), other).unwrap();
    assert_ne!(history.add(&entry(1, 1)).unwrap(), Some(aside));
}

#[test]
fn a_file_that_is_no_history_is_not_written_to() {
    let (_folder, history) = history();
    fs::create_dir_all(history.folder()).unwrap();
    fs::write(history.path(), "dear diary").unwrap();
    assert!(matches!(history.read(), Err(HistoryError::Foreign { .. })));
    assert!(matches!(
        history.forget(|_| true),
        Err(HistoryError::Foreign { .. })
    ));
    let aside = history.add(&entry(1, 1)).unwrap().unwrap();
    assert_eq!(fs::read_to_string(aside).unwrap(), "dear diary");
}

#[test]
fn a_file_that_outgrows_its_limit_keeps_the_last_used() {
    let (_folder, history) = history();
    let history = History::with_limit(history.path, 128 << 10);
    for number in 0..2_000 {
        history.add(&entry(number % 100, number)).unwrap();
        if number == 0 {
            // A writer was killed in the midst of a compaction.
            fs::write(history.folder().join(".history.jsonl-abc"), "half").unwrap();
        }
    }
    assert!(fs::metadata(history.path()).unwrap().len() <= history.limit as u64);
    let (entries, _) = history.read().unwrap();
    assert_eq!(entries.len(), 100);
    assert!(entries.iter().all(|entry| entry.past.runs == 20));
    let names: Vec<_> = fs::read_dir(history.folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");

    let many: Vec<Entry> = (0..6_000).map(|number| entry(number, number)).collect();
    let history = History::new(history.path);
    history.replace(&many).unwrap();
    let (kept, _) = history.read().unwrap();
    assert_eq!(kept.len(), KEPT_ENTRIES);
    assert_eq!(kept[0].last_run, 6_000 - KEPT_ENTRIES as u64);
}

#[test]
fn one_program_is_forgotten_and_the_others_stay() {
    let (_folder, history) = history();
    assert_eq!(history.forget(|_| true).unwrap(), 0);
    for number in 1..=3 {
        history.add(&entry(number, number)).unwrap();
    }
    assert_eq!(history.forget(|entry| entry.past.at_least == 2).unwrap(), 1);
    assert_eq!(history.read().unwrap().0.len(), 2);
    assert_eq!(history.forget(|_| true).unwrap(), 2);
    assert_eq!(history.read().unwrap().0.len(), 0);
}

#[test]
fn a_place_that_cannot_be_written_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let said = History::new(file.join("history"))
        .add(&entry(1, 1))
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("file/history") && said.contains("make its folder"),
        "{said}"
    );
    assert!(!said.contains('\n'));
}
