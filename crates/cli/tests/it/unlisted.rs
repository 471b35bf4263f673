//! Log lines of a node that does not reach its hub.

use std::path::Path;

use daemon::trust;
use hub::Role;

use crate::net::{Net, Program, tickwire, until};

/// A hub with that join file, which logs to `hub.log`.
fn hub(net: &Net, join_file: &Path) -> Program {
    let mut command = tickwire();
    command
        .args(["hub", "run", "--identity"])
        .arg(net.key("hub"))
        .arg("--join-file")
        .arg(join_file)
        .arg("--data")
        .arg(net.path("data"));
    Program::start(&mut command, &net.path("hub.log"))
}

fn matchmaker(net: &Net) -> Program {
    let mut command = tickwire();
    command
        .args(["matchmaker", "run", "--app-id", "1", "--plain-http"])
        .args(["--no-servers", "--http", "127.0.0.1:0", "--identity"])
        .arg(net.key("matchmaker"))
        .arg("--join-file")
        .arg(net.join_path());
    Program::start(&mut command, &net.path("matchmaker.log"))
}

/// Waits for a warning with all `words`; returns their number.
fn wait_warned(net: &Net, log: &str, words: &[&str]) -> usize {
    until(&format!("{log} says {words:?}"), || {
        let text = std::fs::read_to_string(net.path(log)).unwrap();
        let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
        let warnings = text.lines().filter(|line| line.contains("WARN"));
        let count = warnings.filter(has_all).count();
        (count > 0).then_some(count)
    })
}

#[test]
fn nodes_log_an_unreachable_hub_and_hubs_log_unlisted_nodes() {
    let mut net = Net::new();
    drop(net.take_hub_port());
    let node = net.identity("matchmaker").node_id().to_string();
    let _matchmaker = matchmaker(&net);
    let words = ["the hub cannot be reached", node.as_str(), "refused"];
    wait_warned(&net, "matchmaker.log", &words);

    let mut join_file = net.join_file();
    join_file
        .grants
        .retain(|grant| grant.role != Role::Matchmaker);
    let without = net.path("without.join");
    trust::write_new_join_file(&without, &join_file).unwrap();
    let outsider = hub(&net, &without);
    let words = [
        "the hub cannot be reached",
        node.as_str(),
        "join file lists",
    ];
    assert_eq!(wait_warned(&net, "matchmaker.log", &words), 1);
    let words = ["does not list", node.as_str()];
    assert_eq!(wait_warned(&net, "hub.log", &words), 1);
    outsider.kill();

    // Both log the success once it is listed.
    let _hub = hub(&net, &net.join_path());
    until("it is said that the hub is reached", || {
        let text = std::fs::read_to_string(net.path("matchmaker.log")).unwrap();
        text.contains("reached the hub").then_some(())
    });
}
