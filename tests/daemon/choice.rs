//! Which GPUs and instances a job may have, by mode, right and wish.

use std::time::Duration;

use migm_shared::units::GIB;
use migm_supervisor::control::{Outcome, Reply, Request, Submission, Unmet};
use migm_supervisor::node::Node;

use crate::daemon::{Daemon, submission};
use crate::loaded::Loaded;
use crate::peer::{GPU, Peer, descriptor, page, submit};

#[test]
fn in_mode_whole_jobs_get_a_gpu_one_at_a_time_and_its_own_mode_stays() {
    let machine = Loaded::new(false);
    let daemon = machine.daemon(&[], "mode = 'whole'\n");
    let pages = [page(), page()];
    let (mut first, answer) = submit(&daemon, submission("first"), &pages[0]);
    let Reply::Accepted {
        notice: Some(notice), ..
    } = answer
    else {
        panic!("{answer:?}")
    };
    assert!(notice.contains("MIG is off on GPU 0"), "{notice}");
    let grant = first.grant();
    assert_eq!((grant.profile.as_str(), grant.start), ("whole", 0));
    assert!(grant.visible_device.starts_with("GPU-"), "{grant:?}");
    assert!(
        grant.library_path.is_empty(),
        "the loader has its own folders: {grant:?}"
    );
    let (mut second, _) = submit(&daemon, submission("second"), &pages[1]);
    assert!(second.try_hear::<Reply>(Duration::from_millis(300)).is_none());
    first.ended(&grant, Outcome::Done, None);
    first.finished();
    let next = second.grant();
    assert_eq!(next.slice, grant.slice);
    let status = daemon.status();
    assert_eq!((status.gpus[0].mode.as_str(), status.simulated), ("whole", true));
    assert_eq!(
        machine.node.gpus().unwrap()[0].mode,
        migm_supervisor::node::MigMode::Off
    );
    second.ended(&next, Outcome::Done, None);
    second.finished();
}

#[test]
fn without_permission_a_job_is_refused_with_the_capability_and_the_remedy() {
    let machine = Loaded::new(true);
    let daemon = machine.daemon(&[("SIMGPU_NO_PERMISSION", "1")], "");
    for _ in 0..2 {
        let mut runner = Peer::of(&daemon);
        let submit = Request::Submit(submission("powerless"));
        runner.0.send(&submit, Some(descriptor(&page()))).unwrap();
        let reason = loop {
            match runner.hear() {
                Reply::Accepted { .. } => {}
                Reply::Refused { reason } => break reason,
                other => panic!("{other:?}"),
            }
        };
        for said in [
            "NO_PERMISSION",
            "/proc/driver/nvidia/capabilities/mig/config",
            "--use-existing",
        ] {
            assert!(reason.contains(said), "{reason}");
        }
    }
}

#[test]
fn without_permission_idle_instances_of_others_are_used_and_left_as_they_were() {
    let machine = Loaded::new(true);
    let theirs = machine.instance("2g.10gb", 2);
    let mut daemon = machine.daemon(&[("SIMGPU_NO_PERMISSION", "1")], "");
    let asked = Submission {
        use_existing: true,
        ..submission("guest")
    };
    let page = page();
    let (mut runner, _) = submit(&daemon, asked, &page);
    let grant = runner.grant();
    assert_eq!((grant.profile.as_str(), grant.start), ("2g.10gb", 2));
    assert_eq!(Some(grant.visible_device.as_str()), theirs.uuid.as_deref());
    runner.ended(&grant, Outcome::Done, None);
    runner.finished();
    assert!(daemon.terminate().success());
    assert_eq!(machine.node.instances(0).unwrap(), [theirs]);
}

#[test]
fn a_hidden_or_unknown_gpu_is_refused_by_name() {
    let daemon = Daemon::simulated(GPU);
    for (list, said) in [
        ("", "hides all GPUs"),
        ("3", "`3`"),
        ("GPU-nothing", "`GPU-nothing`"),
    ] {
        let asked = Submission {
            visible_devices: Some(list.into()),
            ..submission("picky")
        };
        let (_, answer) = submit(&daemon, asked, &page());
        assert!(
            matches!(&answer, Reply::Refused { reason } if reason.contains(said)),
            "{answer:?}"
        );
    }
    let asked = Submission {
        visible_devices: Some("0".into()),
        ..submission("content")
    };
    let (mut runner, _) = submit(&daemon, asked, &page());
    runner.grant();
}

#[test]
fn a_user_who_names_one_gpu_of_two_gets_slices_there_and_moves_there() {
    let daemon = Daemon::tightest("a100-40gb:2");
    let uuids = daemon
        .status()
        .gpus
        .into_iter()
        .map(|gpu| gpu.uuid)
        .collect::<Vec<_>>();
    for (list, expected) in [
        ("1".to_owned(), &uuids[1]),
        (uuids[0][..12].to_owned(), &uuids[0]),
    ] {
        let asked = Submission {
            visible_devices: Some(list),
            ..submission("picky")
        };
        let (mut runner, _) = submit(&daemon, asked, &page());
        let grant = runner.grant();
        assert_eq!(&grant.gpu_uuid, expected);
        let unmet = Unmet {
            asked: 9 * GIB,
            in_use: 4 * GIB,
        };
        runner.ended(&grant, Outcome::Oom, Some(unmet));
        let next = runner.grant();
        assert_eq!(&next.gpu_uuid, expected);
        runner.ended(&next, Outcome::Done, None);
        runner.finished();
    }
}
