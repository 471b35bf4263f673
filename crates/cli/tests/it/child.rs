//! A game server as a child process: this test program under another name.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crypto::{AddressList, Ring, ServerKeys, TokenKey};
use daemon::allocator::{LocalProcessConfig, SlotEnvironment};
use daemon::link::{GameLink, LeaseConfig, LinkOptions, Offer};
use daemon::trust;

use crate::net::{APP, Net, SERVERS, until};
use crate::server::{Listener, ServerObservation, instance};

/// The process that [`pool`] starts. As an ordinary test it does nothing.
#[test]
fn game_server() {
    let Ok(environment) = SlotEnvironment::read() else {
        return;
    };
    let identity = trust::read_identity(&environment.identity).unwrap();
    let join_file = trust::read_join_file(&environment.join_file).unwrap();
    let mut ring = Ring::new();
    let token_key = TokenKey::generate(&mut ring, 1).unwrap();
    let instance = instance(&mut ring);
    let mut config = LeaseConfig::default();
    if let Ok(millis) = std::env::var(BOOT_MILLIS) {
        config.boot_timeout = Duration::from_millis(millis.parse().unwrap());
    }
    let (sender, incoming) = mpsc::sync_channel(64);
    let link = GameLink::start(
        LinkOptions {
            identity: &identity,
            join_file: &join_file,
            instance,
            offer: Offer {
                app_id: APP,
                capacity: 2,
                identity_keys: ServerKeys::new(&[*identity.public_key()]).unwrap(),
                addresses: AddressList::new(&[environment.listen]).unwrap(),
            },
            token_key: token_key.clone(),
            config,
        },
        Listener {
            incoming: sender,
            keys: Arc::default(),
        },
    )
    .unwrap();
    note(&environment.identity, instance, &token_key);
    // The process ends with its stdin.
    thread::spawn(|| {
        let mut rest = Vec::new();
        std::io::stdin().read_to_end(&mut rest).ok();
        std::process::exit(0);
    });
    loop {
        if let ServerObservation::Ended(_) = incoming.recv().unwrap() {
            drop(link);
            std::process::exit(ENDED);
        }
    }
}

/// Writes pid, instance and key to a file next to the identity, for the test.
fn note(identity: &Path, instance: wire::InstanceId, key: &TokenKey) {
    let text = format!(
        "{} {} {}",
        std::process::id(),
        instance.0,
        hex(&*key.to_bytes())
    );
    let draft = identity.with_extension(format!("draft-{}", std::process::id()));
    fs::write(&draft, text).unwrap();
    fs::rename(&draft, identity.with_extension(format!("run-{instance}"))).unwrap();
}

/// What a child has written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Note {
    pub(crate) pid: u32,
    pub(crate) instance: u64,
    pub(crate) key: [u8; TokenKey::LEN],
}

/// Notes of all children of a network, dead ones included.
pub(crate) fn notes(net: &Net) -> Vec<Note> {
    let folder = net.path("");
    let paths = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut notes: Vec<_> = paths
        .filter(|path: &PathBuf| {
            let extension = path.extension().and_then(|text| text.to_str());
            extension.is_some_and(|extension| extension.starts_with("run-"))
        })
        .map(|path| {
            let text = fs::read_to_string(path).unwrap();
            let mut words = text.split(' ');
            let mut word = || words.next().unwrap();
            Note {
                pid: word().parse().unwrap(),
                instance: word().parse().unwrap(),
                key: unhex(word()),
            }
        })
        .collect();
    notes.sort();
    notes
}

/// Configures this test program as a game server.
pub(crate) fn pool(net: &Net) -> LocalProcessConfig {
    // These ports were free a moment ago.
    LocalProcessConfig::new(
        std::env::current_exe().unwrap(),
        arguments(),
        (0..SERVERS)
            .map(|slot| net.key(&format!("server-{slot}")))
            .collect(),
        net.join_path(),
        ("127.0.0.1".parse().unwrap(), "40000-40009".parse().unwrap()),
    )
}

pub(crate) fn arguments() -> Vec<OsString> {
    let words = ["child::game_server", "--exact", "--nocapture"];
    words.into_iter().map(OsString::from).collect()
}

/// Whether a process runs; a zombie does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| {
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.trim().chars().next());
        !matches!(state, Some('Z' | 'X') | None)
    })
}

pub(crate) fn wait_dead(pid: u32) {
    until("a game server has ended", || (!is_alive(pid)).then_some(()));
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap();
    let pairs = bytes
        .iter()
        .map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    pairs.flatten().collect()
}

fn unhex<const LEN: usize>(text: &str) -> [u8; LEN] {
    let byte = |index: usize| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).unwrap();
    core::array::from_fn(byte)
}

/// Boot timeout of a child, milliseconds.
pub(crate) const BOOT_MILLIS: &str = "TICKWIRE_TEST_BOOT_MILLIS";

/// Exit status of a child whose lease has ended.
pub(crate) const ENDED: i32 = 17;
