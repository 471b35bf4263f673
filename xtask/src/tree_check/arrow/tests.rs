use super::*;
use crate::tree::Workspace;

/// Creates a member. Each dependency is written `kind package`; a leading `=` marks a member.
fn member(folder: &str, dependencies: &[&str]) -> Member {
    let dependencies = dependencies
        .iter()
        .map(|text| {
            let (kind, name) = text.split_once(' ').unwrap();
            let inside = name.strip_prefix('=');
            Dependency {
                package: inside.map_or_else(|| name.to_owned(), |it| format!("tickwire-{it}")),
                kind: match kind {
                    "dev" => Kind::Dev,
                    "build" => Kind::Build,
                    _ => Kind::Normal,
                },
                optional: kind == "optional",
                folder: inside.map(|it| format!("crates/{it}")),
            }
        })
        .collect();
    Member {
        package: format!("tickwire-{folder}"),
        folder: folder.to_owned(),
        dependencies,
    }
}

fn faults(members: Vec<Member>) -> Vec<String> {
    let workspace = Workspace {
        members,
        ..Workspace::default()
    };
    let findings = check(&workspace.view());
    findings.into_iter().map(|finding| finding.fault).collect()
}

#[test]
fn an_arrow_up_or_sideways_is_found() {
    for (folder, dependency) in [
        ("crates/wire", "normal =crypto"),
        ("crates/lockstep", "normal =udp_proto"),
        ("crates/hub", "optional =udp_proto"),
        ("crates/matchmaker_core", "build =servicer"),
        ("crates/udp_proto", "normal =netsim"),
        ("crates/tickwire", "normal =daemon"),
    ] {
        let found = faults(vec![member(folder, &[dependency])]);
        assert_eq!(found.len(), 1, "{folder} {dependency}: {found:?}");
    }
}

#[test]
fn the_arrows_of_the_architecture_pass() {
    let members = vec![
        member("crates/wire", &["dev =netsim", "normal hashbrown"]),
        member("crates/crypto", &["normal =wire"]),
        member(
            "crates/relay_mesh",
            &["normal =wire", "normal =crypto", "normal =udp_proto"],
        ),
        member("crates/servicer", &["normal =relay_mesh", "optional tokio"]),
        member(
            "crates/daemon",
            &["normal =servicer", "normal =hub_nats", "normal tokio"],
        ),
        member("examples", &["normal =tickwire", "normal =daemon"]),
        member("xtask", &["normal clap"]),
    ];
    assert_eq!(faults(members), [""; 0]);
}

#[test]
fn tests_below_the_drivers_do_not_need_them() {
    assert_eq!(
        faults(vec![member("crates/hub", &["dev =servicer"])]).len(),
        1
    );
    assert!(faults(vec![member("crates/servicer", &["dev =tickwire"])]).is_empty());
}

#[test]
fn a_member_without_a_row_is_found() {
    assert_eq!(faults(vec![member("crates/stranger", &[])]).len(), 1);
}

#[test]
fn executors_and_a_seventh_dependency_are_found() {
    assert_eq!(
        faults(vec![member("crates/hub", &["optional tokio"])]).len(),
        1
    );
    assert!(faults(vec![member("crates/hub", &["dev tokio"])]).is_empty());
    let six = [
        "normal a", "normal b", "normal c", "normal d", "normal e", "normal f",
    ];
    let with = |more: &'static str| {
        let all: Vec<_> = six.iter().copied().chain([more]).collect();
        faults(vec![member("crates/wire", &all)])
    };
    assert!(with("optional g").is_empty());
    assert!(with("dev g").is_empty());
    assert_eq!(with("normal g").len(), 1);
}

#[test]
fn a_finding_points_at_the_line() {
    let manifest = "[package]\nname = \"tickwire-hub\"\n\n[dependencies]\ntokio = \"1\"\n\
                    udp_proto.workspace = true\n";
    let mut workspace = Workspace::of(&[("crates/hub/Cargo.toml", manifest)]);
    workspace.members = vec![member("crates/hub", &["normal =udp_proto", "normal tokio"])];
    let lines: Vec<_> = check(&workspace.view()).iter().map(|it| it.line).collect();
    assert_eq!(lines, [6, 5]);
}

#[test]
fn libraries_end_with_the_facade_and_programs_with_the_daemon() {
    assert_eq!(LIBRARIES.last(), Some(&"tickwire"));
    assert_eq!(PROGRAMS.last(), Some(&"daemon"));
}
