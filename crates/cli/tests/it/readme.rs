//! The README's commands and game server, run as in the README.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crypto::ClientGrant;
use daemon::allocator::SlotEnvironment;
use tickwire::{AppId, Client, Config, Event, RELIABLE};
use udp_proto::Target;

use crate::http::{assigned, submit};
use crate::net::{Net, until};

/// The README's program, as a module.
#[path = "../../../daemon/examples/game_server.rs"]
mod program;

const README: &str = include_str!("../../../daemon/README.md");

/// The process that the matchmaker starts. As an ordinary test it does nothing.
#[test]
fn game_server() {
    if SlotEnvironment::read().is_ok() {
        program::main().unwrap();
    }
}

#[test]
fn the_page_shows_the_program_that_is_run() {
    let file = include_str!("../../../daemon/examples/game_server.rs")
        .replace("pub(crate) fn main", "fn main");
    let shown = block("```rust,no_run\n");
    assert_eq!(shown, file, "the page is not examples/game_server.rs");
}

/// The first code block of the README with this fence.
fn block(fence: &str) -> String {
    let (_, rest) = README.split_once(fence).unwrap();
    let (block, _) = rest.split_once("```\n").unwrap();
    block.to_owned()
}

/// Processes killed at the end of the test.
#[derive(Default)]
struct Started(Vec<Child>);

impl Drop for Started {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// A script in place of the game server; it starts this test program.
fn my_game_server(folder: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("my-game-server");
    let this = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\nexec {} readme::game_server --exact --nocapture\n",
        this.display()
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn free_stream_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[test]
fn the_page_runs_unchanged() {
    // Only its folder is used.
    let net = Net::new();
    let folder = net.path("page");
    std::fs::create_dir(&folder).unwrap();
    my_game_server(&folder);
    let (edge, game) = (free_stream_port(), free_port());
    let text = block("```sh\n")
        .replace("\\\n", " ")
        .replace(
            "127.0.0.1:7400",
            &format!("127.0.0.1:{}", free_stream_port()),
        )
        .replace("127.0.0.1:8080", &format!("127.0.0.1:{edge}"))
        .replace("40000-40000", &format!("{game}-{game}"));
    let mut started = Started::default();
    for line in text.lines() {
        let (line, stays) = match line.strip_suffix('&') {
            Some(line) => (line, true),
            None => (line, false),
        };
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some("tickwire"), "{line}");
        let words: Vec<&str> = words.collect();
        let command = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_tickwire"));
            command
                .args(&words)
                .current_dir(&folder)
                .stdin(Stdio::null());
            command.stdout(Stdio::null());
            command
        };
        if stays {
            started.0.push(command().spawn().unwrap());
        } else {
            // The status is checked until everything is up.
            until(line, || command().status().unwrap().success().then_some(()));
        }
    }
    let edge = SocketAddr::from(([127, 0, 0, 1], edge));
    let players = [1, 2].map(|client| submit(edge, client));
    for held in &players {
        let seat = assigned(edge, held);
        play(seat.text("grant"));
    }
}

/// Connects with a grant, sends a message and receives the echo.
fn play(grant: &str) {
    let grant: ClientGrant = grant.parse().unwrap();
    let target = Target::from(&grant);
    let mut client = Client::connect_to(target, AppId(1), Config::default()).unwrap();
    until("the server has answered", || {
        for event in client.wait_tick(NonZeroU8::MAX).unwrap() {
            match event {
                Event::Connected { .. } => client.send(RELIABLE, b"hello").unwrap(),
                Event::Message { bytes, .. } => {
                    assert_eq!(bytes, b"hello");
                    return Some(());
                }
                Event::Unreachable { failure } => panic!("{failure}"),
                Event::Disconnected { reason, .. } => panic!("{reason}"),
                Event::Settled { .. } | _ => {}
            }
        }
        None
    });
}
