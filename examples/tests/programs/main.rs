//! Runs the examples as processes.

#![cfg(test)]

mod games;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::num::NonZeroU8;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use daemon::role::hub::{HubOptions, HubProcess};
use hub::Role;
use hub::join_file::{Grant, JoinFile, NetworkSecret};
use tickwire::crypto::{Identity, Ring};
use tickwire::{AppId, Client, Event, RELIABLE, ServerKey};
use tickwire_examples::ChildGuard;

const LOCKSTEP: AppId = AppId(0x6c6f_636b);
const PONG: AppId = AppId(0x706f_6e67);

/// Builds an example with the features that CI builds all tests with. `cargo test` builds the
/// executables of examples only if no target is named.
fn example(name: &str) -> Command {
    static BUILT: LazyLock<bool> = LazyLock::new(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--workspace", "--all-features"]);
        for name in [
            "chat",
            "dash",
            "echo",
            "ecs",
            "hello_client",
            "hello_server",
            "hub",
            "lockstep",
            "mail",
            "match_client",
            "match_server",
            "mesh",
            "metrics",
            "pong",
            "prediction",
            "replay",
        ] {
            cargo.args(["--example", name]);
        }
        cargo.status().unwrap().success()
    });
    assert!(*BUILT, "the examples do not build");
    let test = std::env::current_exe().unwrap();
    Command::new(test.ancestors().nth(2).unwrap().join("examples").join(name))
}

fn lockstep(arguments: &[&str]) -> Output {
    example("lockstep").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A proxy before a server which forwards both directions and keeps a copy.
fn tap(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let socket = UdpSocket::bind(SocketAddr::new(server.ip(), 0)).unwrap();
    let (address, incoming) = (socket.local_addr().unwrap(), Arc::default());
    let copy: Arc<Mutex<Vec<u8>>> = Arc::clone(&incoming);
    std::thread::spawn(move || {
        let (mut client, mut buffer) = (server, [0; 2_048]);
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            copy.lock().unwrap().extend_from_slice(&buffer[..len]);
            if from != server {
                client = from;
            }
            let to = if from == server { client } else { server };
            socket.send_to(&buffer[..len], to).unwrap();
        }
    });
    (address, incoming)
}

const NO_RUN: &str = "```rust,no_run\n";
/// Programs that import crates above the page's own.
const IGNORED: &str = "```rust,ignore\n";

/// Returns the programs in a page's blocks of `fence`.
fn shown<'a>(page: &'a str, fence: &str) -> Vec<&'a str> {
    page.split(fence)
        .skip(1)
        .map(|rest| rest.split_once("```\n").unwrap().0)
        .collect()
}

#[test]
fn the_pages_contain_the_hello_programs() {
    let files = [
        include_str!("../../hello_server.rs"),
        include_str!("../../hello_client.rs"),
    ];
    // The pages omit the module docs and the lint attribute that the workspace needs.
    let programs = files.map(|file| file.splitn(3, "\n\n").nth(2).unwrap());
    let page = include_str!("../../../crates/tickwire/README.md");
    assert_eq!(shown(page, NO_RUN), programs);
    let pages = [
        include_str!("../../../README.md"),
        include_str!("../../../docs/start.md"),
    ];
    for page in pages {
        assert_eq!(shown(page, NO_RUN), programs);
    }

    let mut command = example("hello_server");
    command.arg("127.0.0.1:0").stdout(Stdio::piped());
    let mut server = ChildGuard(command.spawn().unwrap());
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let words = first.split(' ');
    let output = example("hello_client").args(words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "hello\n");
}

#[test]
fn the_lockstep_page_contains_a_match_that_two_players_finish() {
    let files = [
        include_str!("../../match_server.rs"),
        include_str!("../../match_client.rs"),
    ];
    let programs = files.map(|file| file.splitn(3, "\n\n").nth(2).unwrap());
    let page = include_str!("../../../crates/lockstep/README.md");
    assert_eq!(shown(page, IGNORED), programs);

    let mut command = example("match_server");
    command.arg("127.0.0.1:0").stdout(Stdio::piped());
    let mut server = ChildGuard(command.spawn().unwrap());
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let players: Vec<Child> = (0..2)
        .map(|_| {
            let mut command = example("match_client");
            command.args(first.split(' ')).stdout(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let scores: Vec<String> = players
        .into_iter()
        .map(|player| {
            let output = player.wait_with_output().unwrap();
            assert!(output.status.success());
            text(&output.stdout)
        })
        .collect();
    // Both simulated the same inputs, and each pressed its button in nearly every tick.
    assert_eq!(scores[0], scores[1]);
    let points = scores[0]
        .trim()
        .split(" : ")
        .map(|points| points.parse().unwrap());
    assert!(points.min().unwrap_or(0) > 200_u32, "{scores:?}");
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(
        rest.len(),
        2,
        "each player finished, none differed: {rest:?}"
    );
    assert!(
        rest.iter().all(|line| line.ends_with("left: Finished")),
        "{rest:?}"
    );
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn the_hub_page_contains_a_mail_sender_and_a_receiver() {
    let program = include_str!("../../mail.rs")
        .splitn(3, "\n\n")
        .nth(2)
        .unwrap();
    let page = include_str!("../../../crates/hub/README.md");
    assert_eq!(shown(page, IGNORED), [program]);

    let folder = std::env::temp_dir().join(format!("tickwire-mail-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut file = JoinFile::new(NetworkSecret::new([7; 32]));
    let listen = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let hub = Identity::generate(&mut Ring::new()).unwrap();
    let at = listen.to_string();
    file.grants
        .push(Grant::new(Role::Hub, hub.node_id()).with_address(&at));
    for name in ["writer", "reader"] {
        let identity = Identity::generate(&mut Ring::new()).unwrap();
        file.grants
            .push(Grant::new(Role::GameNode, identity.node_id()));
        fs::write(folder.join(name), identity.to_pem().as_bytes()).unwrap();
    }
    fs::write(folder.join("net.join"), file.to_text()).unwrap();
    let data = folder.join("hub");
    let hub = HubProcess::start(HubOptions::new(&hub, file, &data)).unwrap();
    let mail = |name, words: &[&str]| {
        let mut command = example("mail");
        command.arg(folder.join(name)).arg(folder.join("net.join"));
        let output = command.args(words).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(mail("writer", &["42", "see you at nine"]), "stored\n");
    assert_eq!(mail("reader", &["42"]), "see you at nine\n");
    hub.shutdown(Duration::from_secs(1)).unwrap();
    fs::remove_dir_all(&folder).unwrap();
}

/// Errors are printed as one sentence, never in `Debug` format.
#[test]
fn an_example_that_cannot_run_prints_one_sentence() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let busy = socket.local_addr().unwrap().to_string();
    let missing = "/no/such/file";
    for (name, words) in [
        ("echo", vec!["server", &busy]),
        ("lockstep", vec!["server", &busy]),
        ("metrics", vec![&busy, "127.0.0.1:0"]),
        ("pong", vec!["server", &busy]),
        ("dash", vec!["127.0.0.1:1"]),
        ("replay", vec!["play", missing]),
        ("mesh", vec!["node", "--config", missing]),
    ] {
        let output = example(name).args(&words).output().unwrap();
        let said = text(&output.stderr);
        let code = output.status.code().unwrap();
        assert!(code == 1 || code == 2, "{name}: {code} {said}");
        assert_eq!(said.lines().count(), 1, "{name}: {said}");
        for wrong in ["Error: ", " { ", "(\"", "Some(", "panicked", "kind:"] {
            assert!(!said.contains(wrong), "{name}: {said}");
        }
    }
    // Also if `main` returns the error, as in the docs of the facade.
    let output = example("hello_server").arg(&busy).output().unwrap();
    let sentence = format!("Error: UDP port {busy} is in use by another socket\n");
    assert_eq!(text(&output.stderr), sentence);
    // Without arguments, it prints its usage.
    for name in [
        "chat", "echo", "ecs", "lockstep", "mesh", "metrics", "pong", "replay",
    ] {
        let output = example(name).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains("Usage: "), "{name}: {said}");
    }
}

#[test]
fn u1_echo_between_processes_sends_nothing_in_clear_over_ipv4_and_ipv6() {
    let message = "what nobody on the way may read";
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let mut command = example("echo");
        command.args(["server", at]).stdout(Stdio::piped());
        let mut server = ChildGuard(command.spawn().unwrap());
        let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let (address, key) = first.split_once(' ').unwrap();
        let (address, incoming) = tap(address.parse().unwrap());
        let mut command = example("echo");
        command.args(["client", &address.to_string(), key, message]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        // The message passed the proxy in both directions.
        assert_eq!(text(&output.stdout), format!("{message}\n"));
        let incoming = incoming.lock().unwrap();
        assert!(
            incoming.len() > 1_200 + 2 * message.len(),
            "{}",
            incoming.len()
        );
        let words = message.split(' ').map(str::as_bytes);
        for word in words.filter(|word| word.len() > 3) {
            let is_there = incoming.windows(word.len()).any(|piece| piece == word);
            assert!(!is_there, "{}", String::from_utf8_lossy(word));
        }
    }
    let output = example("echo").arg("both").output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.ends_with("echo: both servers sent back what they heard\n"));
}

#[test]
fn lockstep_exits_with_0_if_all_states_are_equal() {
    let output = lockstep(&["run", "--ticks=40", "--delay=5"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.contains("lockstep: 40 ticks, coins "), "{said}");
    assert!(!said.contains("desync"), "{said}");
    // The server's hash of tick 30 equals each player's.
    let hash = |line: &str| line.split_once("hash ").map(|(_, hash)| hash.to_owned());
    let hashes: Vec<_> = said
        .lines()
        .filter(|line| line.contains("tick   30 "))
        .filter_map(hash)
        .collect();
    assert_eq!(hashes.len(), 3, "{said}");
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{said}");
}

#[test]
fn lockstep_names_a_player_with_a_different_state_and_exits_with_1() {
    let output = lockstep(&["run", "--ticks=40", "--delay=5", "--desync-at=20"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let named = "desync: player 1 differs from tick 20 on";
    assert!(said.contains(named), "{said}");
}

#[test]
fn lockstep_reports_an_invalid_match() {
    for wrong in [
        "--ticks=4294967295",
        "--ticks=0",
        "--players=65",
        "--delay=10001",
    ] {
        let output = lockstep(&["run", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(!text(&output.stderr).contains("panicked"), "{wrong}");
    }
}

/// Connects, sends `messages`, and polls until the server disconnects the session.
fn is_let_go(address: SocketAddr, key: ServerKey, messages: &[&[u8]]) -> bool {
    let mut client = Client::connect(address, LOCKSTEP, key).unwrap();
    for _ in 0..2_000 {
        for event in client.wait_tick(NonZeroU8::MAX).unwrap() {
            match event {
                Event::Connected { .. } => {
                    for message in messages {
                        client.send(RELIABLE, message).unwrap();
                    }
                }
                Event::Disconnected { .. } => return true,
                Event::Unreachable { failure } => panic!("{failure}"),
                Event::Message { .. } | _ => {}
            }
        }
    }
    false
}

/// Starts a server. Returns it with its output lines, and its address and key.
fn lockstep_server(options: &[&str]) -> (ChildGuard, impl Iterator<Item = String>, [String; 2]) {
    let mut command = example("lockstep");
    command.args(["server", "127.0.0.1:0"]).args(options);
    let mut server = ChildGuard(command.stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let first = lines.next().unwrap();
    let (address, key) = first.split_once(' ').unwrap();
    let at = [address.to_owned(), key.to_owned()];
    (server, lines, at)
}

/// Plays a seat.
fn lockstep_player([address, key]: &[String; 2], options: &[&str]) -> ChildGuard {
    let mut command = example("lockstep");
    command.args(["client", address, key]).args(options);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    ChildGuard(command.spawn().unwrap())
}

/// Returns a process's exit code and stderr.
fn end_of(process: &mut ChildGuard) -> (Option<i32>, String) {
    let mut said = String::new();
    let mut stderr = process.0.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    (process.0.wait().unwrap().code(), said)
}

#[test]
fn lockstep_disconnects_clients_without_a_seat_and_continues() {
    let (mut server, mut lines, at) = lockstep_server(&["--players=2", "--ticks=60"]);
    let (address, key) = (at[0].parse().unwrap(), at[1].parse().unwrap());
    // No such seat, an empty message, two bytes, and a second seat for one session.
    let refused: [&[&[u8]]; 4] = [&[&[200]], &[&[]], &[&[0, 1]], &[&[0], &[1]]];
    for messages in refused {
        assert!(is_let_go(address, key, messages), "{messages:?}");
    }
    let player = |seat| lockstep_player(&at, &[seat, "--players=2", "--ticks=60", "--delay=5"]);
    let mut players = [player("--seat=0"), player("--seat=1")];
    assert!(lines.next().unwrap().starts_with("tick    0"));
    // The match has started, so the seat is taken.
    assert!(is_let_go(address, key, &[&[0]]));
    let last = lines.last().unwrap();
    assert!(last.starts_with("lockstep: 60 ticks"), "{last}");
    assert!(server.0.wait().unwrap().success());
    for player in &mut players {
        let (code, said) = end_of(player);
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn lockstep_fails_if_a_player_left_early() {
    // A seat which the match does not have.
    let (_server, _, at) = lockstep_server(&["--players=1", "--ticks=3000"]);
    let mut guest = lockstep_player(&at, &["--seat=9", "--players=1", "--ticks=3000"]);
    let (code, said) = end_of(&mut guest);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("was let go before tick 3000"), "{said}");

    // The server is killed.
    let (mut server, mut lines, at) = lockstep_server(&["--players=1", "--ticks=3000"]);
    let mut player = lockstep_player(&at, &["--seat=0", "--players=1", "--ticks=3000"]);
    assert!(lines.next().unwrap().starts_with("tick    0"));
    server.0.kill().unwrap();
    let (code, said) = end_of(&mut player);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("was let go before tick 3000"), "{said}");
}

#[test]
fn pg16_the_mesh_continues_when_its_relay_is_killed() {
    let output = example("mesh").arg("demo").output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.contains("summary: good; "), "{said}");
    assert!(said.contains("; the download is whole"), "{said}");
}

/// A game which links the library is its own entry.
#[test]
fn pg16_a_game_with_its_own_entry_continues_too() {
    let output = example("mesh")
        .args(["demo", "--own-entry"])
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.contains("in the game's own process"), "{said}");
    assert!(said.contains("summary: good; "), "{said}");
    let (_, sealed) = said.split_once("own entry has sealed ").expect("a count");
    let sealed = sealed.split(' ').next().map(str::parse);
    assert!(matches!(sealed, Some(Ok(100_u64..))), "{said}");
}

/// A short run of `mesh mass`. It checks only counts, because times depend on the machine.
#[test]
fn mesh_a2_players_that_join_at_once_over_a_relay_are_all_served() {
    let output = example("mesh")
        .args(["mass", "--flows=200", "--playing=40"])
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert!(
        said.contains("200 of 200 served"),
        "{said}{}",
        text(&output.stderr)
    );
}

/// A short run of `cargo xtask soak mesh`, with the faults that do not restart an entry.
#[test]
fn a_soak_of_the_mesh_serves_every_flow_after_each_fault() {
    let output = example("mesh")
        .args(["soak", "--seconds=10", "--flows=24", "--seed=1"])
        .args(["--only=kill-relay", "--only=rebind", "--only=config-change"])
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.contains("soak: good; "), "{said}");
}

#[test]
fn u23_only_players_of_the_https_lobby_enter_the_room() {
    let output = example("chat").arg("run").output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    for line in [
        "ann and bob have talked",
        "bob was refused: no such account with this password",
        "a lobby was not believed: its certificate is of no authority that is trusted here",
        "a lobby was not believed: the time of its certificate is over",
        "a lobby was not believed: its certificate is for another host",
        "all as the script says",
    ] {
        assert!(said.contains(&format!("chat: {line}\n")), "{said}");
    }
}

#[test]
fn u24_pong_without_a_terminal_plays_itself_with_equal_scores() {
    let output = example("pong").arg("play").output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let score = said.strip_prefix("pong: 300 ticks, ").unwrap();
    let score = score.strip_suffix(", and all agree\n").unwrap();
    assert_ne!(score, "0 : 0");
    // If stdout is not a terminal, the output has no escape sequences.
    assert!(!said.contains('\u{1b}'), "{said}");
}

#[test]
fn u24_pong_fails_if_its_server_is_killed() {
    let mut command = example("pong");
    command.args(["server", "127.0.0.1:0", "--ticks=3000"]);
    let mut server = ChildGuard(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let (address, key) = first.split_once(' ').unwrap();
    let mut command = example("pong");
    command.args(["client", address, key, "--bot"]);
    command.stderr(Stdio::piped());
    let mut bot = ChildGuard(command.spawn().unwrap());
    // An opponent joins and sends nothing.
    let mut client = Client::connect(address, PONG, key.parse().unwrap()).unwrap();
    let mut is_seated = false;
    while !is_seated {
        for event in client.wait_tick(NonZeroU8::MAX).unwrap() {
            assert!(!matches!(event, Event::Unreachable { .. }), "{event:?}");
            is_seated |= matches!(event, Event::Message { channel, .. } if channel == RELIABLE);
        }
    }
    server.0.kill().unwrap();
    let (code, said) = end_of(&mut bot);
    assert_eq!(code, Some(1), "{said}");
}

#[test]
fn every_step_of_the_hub_example_holds() {
    for shards in ["--shards=1", "--shards=2"] {
        let output = example("hub").arg(shards).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert!(
            text.contains("steps hold") && !text.contains("FAILED"),
            "{text}"
        );
    }
}

#[test]
fn hub_1_no_mail_is_lost_while_hub_and_nodes_are_killed() {
    let output = example("hub")
        .args(["soak", "--kills", "12"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{output:?}");
    assert!(text.contains("12 processes killed"), "{text}");
    assert!(text.contains("0 lost, 0 doubled, 0 out of order"), "{text}");
}

#[test]
fn u18_metrics_are_read_over_http() {
    let mut command = example("metrics");
    command.args(["127.0.0.1:0", "127.0.0.1:0"]);
    let mut server = ChildGuard(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut first = String::new();
    let mut stdout = BufReader::new(server.0.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    let (_, http) = first.trim().rsplit_once("http://").unwrap();
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(http).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {http}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    // A client that sends nothing only delays the next one.
    let _silent = TcpStream::connect(http).unwrap();
    let metrics = ask("/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.contains("\ntickwire_sessions 0\n"), "{metrics}");
    assert!(ask("/report.json").contains("\r\n\r\n{\"schema\":1,"));
    assert!(ask("/").starts_with("HTTP/1.1 404 "));
}

#[test]
fn u19_the_dashboard_shows_a_server_in_use() {
    let mut command = example("metrics");
    command.args(["127.0.0.1:0", "127.0.0.1:0"]);
    let mut server = ChildGuard(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut first = String::new();
    let mut stdout = BufReader::new(server.0.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    let words: Vec<_> = first.split_whitespace().collect();
    let app = AppId(0x6563_686f);
    let key = words[1].parse().unwrap();
    let mut client = Client::connect(words[0], app, key).unwrap();
    let look = || example("dash").arg(words[2]).output().unwrap();
    let row = |page: &str, name: &str| -> Vec<String> {
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        let words = line.unwrap_or_default().split_whitespace();
        words.map(str::to_owned).collect()
    };
    let mut page = String::new();
    // The first second of the series ends some time after the player joined; the loop waits for it.
    for _ in 0..60 {
        for _ in 0..60 {
            client.wait_tick(NonZeroU8::MIN.saturating_add(59)).unwrap();
            client.send(RELIABLE, b"tick").ok();
        }
        let output = look();
        assert!(output.status.success(), "{}", text(&output.stderr));
        page = text(&output.stdout);
        let is_played = |name| row(&page, name).first().is_some_and(|last| last != "0");
        if page.starts_with("connections 1 ") && is_played("packets in /s") {
            break;
        }
    }
    assert!(page.starts_with("connections 1 "), "{page}");
    for name in ["packets in /s", "bytes out /s", "ticks /s"] {
        assert_ne!(row(&page, name)[0], "0", "{page}");
    }
    for name in ["acknowledged %", "time receiving %", "time of game %"] {
        let share: f64 = row(&page, name)[0].parse().unwrap();
        assert!((0.0..=100.0).contains(&share), "{page}");
    }
    assert!(!page.contains('\u{1b}'), "{page}");
    // The server is gone: one sentence.
    drop(server);
    let output = look();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("nobody tells at"),
        "{}",
        text(&output.stderr)
    );
}
