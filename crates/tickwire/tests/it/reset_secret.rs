//! A server that keeps its identity across restarts and resets old sessions.

use core::net::SocketAddr;
use core::num::NonZeroU8;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, process};

use tickwire::udp_proto::Listen;
use tickwire::{Client, CloseReason, Config, Event, Server, UNRELIABLE};

use crate::exchange::{APP, address};
use crate::kick::until_connected;

/// Wait timeout; no test passes because of it.
const LONG: Duration = Duration::from_secs(20);

fn serve(at: SocketAddr, identity: &Path) -> Server {
    Server::bind_kept(at, APP, Config::for_server(), identity, |own, instance| {
        Listen::new(own, instance).with_open_mode()
    })
    .unwrap()
}

/// A test's directory, removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let path = env::temp_dir().join(format!("tickwire-kept-{}-{test}", process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_restart_with_a_kept_secret_is_detected_by_short_resets() {
    let directory = Directory::new("restart");
    let identity = directory.0.join("server.pem");
    let at = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut server = serve(at, &identity);
    let key = server.key();
    let client = Client::connect(at, APP, key).unwrap();
    let mut client = client.in_background().unwrap();
    until_connected(&mut server);
    let Some(Event::Connected { session, .. }) = client.wait_event(LONG) else {
        panic!("not connected")
    };
    drop(server);
    let mut server = serve(at, &identity);
    assert_eq!(server.key().to_string(), key.to_string(), "it is kept");
    // 20 s of ticks.
    for _ in 0..1_200 {
        // Fails if the session has ended and the event was not polled yet.
        if client.send(UNRELIABLE, &[7; 20]).is_err() {
            break;
        }
        server.wait_tick(NonZeroU8::new(60).unwrap()).unwrap();
        if let Some(event) = client.next_event() {
            let Event::Disconnected {
                session: of,
                reason,
                ..
            } = event
            else {
                panic!("{event:?}")
            };
            assert_eq!((of, reason), (session, CloseReason::Reset));
            return;
        }
    }
    match client.wait_event(LONG) {
        Some(Event::Disconnected { reason, .. }) => assert_eq!(reason, CloseReason::Reset),
        other => panic!("{other:?}"),
    }
}

#[test]
fn port_0_keeps_the_identity_and_no_reset_secret() {
    let directory = Directory::new("port");
    let identity = directory.0.join("server.pem");
    let keys = [(); 2].map(|()| serve(address("127.0.0.1:0"), &identity).key().to_string());
    assert_eq!(keys[0], keys[1]);
    assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 1);
}
