//! Game servers that the matchmaker starts as real processes; none is left behind.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use crypto::TokenKey;
use wire::InstanceId;

use crate::child::{self, BOOT_MILLIS, ENDED, hex, is_alive, notes, pool, wait_dead};
use crate::http::{assigned, submit};
use crate::net::{Net, PATIENCE, Program, bytes_under, tickwire, until};
use crate::server::open;

#[test]
fn a_warm_server_gets_the_match_and_ends_with_the_matchmaker() {
    let mut net = Net::new();
    let _hub = net.hub();
    let matchmaker = net.matchmaker(Some(pool(&net)));
    let edge = matchmaker.address();
    // Started before any ticket.
    until("a server is warm", || {
        (!notes(&net).is_empty()).then_some(())
    });
    let players = [1, 2].map(|client| submit(edge, client));
    let seats = players.each_ref().map(|held| assigned(edge, held));
    let server = seats[0].json["server"]["instance"].as_str().unwrap();
    let note = notes(&net)
        .into_iter()
        .find(|note| InstanceId(note.instance).to_string() == server)
        .unwrap();
    let key = TokenKey::from_bytes(&note.key);
    let token = open(&key, InstanceId(note.instance), seats[0].text("grant")).unwrap();
    let address = token.grant.addresses.as_slice()[0];
    assert!((40_000..40_003).contains(&address.port()), "{address}");
    // The first is full, so another is started.
    until("another is warm", || (notes(&net).len() >= 2).then_some(()));
    matchmaker.shutdown(PATIENCE);
    for note in notes(&net) {
        assert!(!is_alive(note.pid), "{} outlived its matchmaker", note.pid);
    }
}

#[test]
fn a_killed_server_is_replaced() {
    let mut net = Net::new();
    let _hub = net.hub();
    let _matchmaker = net.matchmaker(Some(pool(&net)));
    let first = until("a server is warm", || notes(&net).pop());
    kill(first.pid);
    until("another is warm", || {
        let notes = notes(&net);
        notes
            .into_iter()
            .find(|note| note.instance != first.instance)
    });
}

#[test]
fn children_end_when_their_matchmaker_is_killed() {
    let mut net = Net::new();
    let _hub = net.hub();
    let matchmaker = matchmaker_process(&net);
    let child = until("a server is warm", || notes(&net).pop());
    assert!(is_alive(child.pid));
    matchmaker.kill();
    wait_dead(child.pid);
}

#[test]
fn a_matchmaker_ends_its_servers_when_its_stdin_closes() {
    let mut net = Net::new();
    let _hub = net.hub();
    let matchmaker = matchmaker_process(&net);
    let child = until("a server is warm", || notes(&net).pop());
    assert_eq!(matchmaker.release(), Some(0));
    assert!(!is_alive(child.pid));
}

#[test]
fn a_matchmaker_ends_its_servers_at_sigterm() {
    let mut net = Net::new();
    let _hub = net.hub();
    let matchmaker = matchmaker_process(&net);
    let child = until("a server is warm", || notes(&net).pop());
    matchmaker.signal("-TERM");
    assert_eq!(matchmaker.wait_end(), Some(0));
    assert!(!is_alive(child.pid));
}

#[test]
fn a_superseded_matchmaker_ends_its_servers_first() {
    let mut net = Net::new();
    let _hub = net.hub();
    let first = matchmaker_process(&net);
    let child = until("a server is warm", || notes(&net).pop());
    // A later run with the same identity.
    let _second = net.matchmaker(None);
    assert_eq!(first.wait_end(), Some(1));
    assert!(!is_alive(child.pid));
}

#[test]
fn a_server_without_a_lease_ends_though_its_stdin_is_open() {
    let mut net = Net::new();
    let _hub = net.hub();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(child::arguments())
        .env("TICKWIRE_IDENTITY", net.key("server-0"))
        .env("TICKWIRE_JOIN_FILE", net.join_path())
        .env("TICKWIRE_LISTEN", "127.0.0.1:40000")
        .env("TICKWIRE_SLOT", "0")
        .env(BOOT_MILLIS, "500")
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.take();
    assert_eq!(child.wait().unwrap().code(), Some(ENDED));
    drop(stdin);
}

#[test]
fn mm_7_no_key_of_a_token_reaches_a_log_or_a_disk() {
    let mut net = Net::new();
    let hub = net.hub_process();
    let matchmaker = matchmaker_process(&net);
    let edge = matchmaker
        .said
        .strip_prefix("http://")
        .unwrap()
        .parse()
        .unwrap();
    let players = [1, 2].map(|client| submit(edge, client));
    let seat = assigned(edge, &players[0]);
    assert_eq!(matchmaker.release(), Some(0));
    hub.kill();

    let looked_at = ["data", "hub.log", "matchmaker.log"].map(|name| bytes_under(&net.path(name)));
    let notes = notes(&net);
    assert!(!notes.is_empty());
    // The logs are not empty.
    assert!(holds(&looked_at[1], b"joined"), "the hub logs nothing");
    assert!(
        holds(&looked_at[2], b"a match is live"),
        "the matchmaker logs nothing"
    );
    let psk = crypto::ClientGrant::from_text(seat.text("grant"))
        .unwrap()
        .psk;
    let mut secrets = vec![
        psk.expose().to_vec(),
        seat.text("grant").as_bytes()[..40].to_vec(),
        players[0].resume_key.clone().into_bytes(),
    ];
    for note in &notes {
        // The part of the key after its id; the id is not secret.
        secrets.push(note.key[4..].to_vec());
    }
    for secret in secrets {
        // Eight consecutive bytes would be a leak.
        for part in secret.windows(8).step_by(8) {
            let digits = hex(part);
            for bytes in &looked_at {
                assert!(!holds(bytes, part), "a secret is there");
                assert!(
                    !holds(bytes, digits.as_bytes()),
                    "a secret is there in digits"
                );
            }
        }
    }
}

fn matchmaker_process(net: &Net) -> Program {
    let mut command = tickwire();
    command
        .args(["matchmaker", "run", "--http", "127.0.0.1:0", "--plain-http"])
        .args([
            "--app-id",
            "42",
            "--ports",
            "40000-40002",
            "--end-with-stdin",
        ])
        .arg("--identity")
        .arg(net.key("matchmaker"))
        .arg("--join-file")
        .arg(net.join_path());
    for slot in 0..3 {
        command
            .arg("--slot")
            .arg(net.key(&format!("server-{slot}")));
    }
    command
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(child::arguments());
    Program::start(&mut command, &net.path("matchmaker.log"))
}

fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
