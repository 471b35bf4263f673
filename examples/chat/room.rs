//! The room: a client with a grant of the lobby joins under its account name, and all receive its
//! lines.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::mpsc::{Receiver, TryRecvError};

use tickwire::udp_proto::Proof;
use tickwire::{Event, HZ_30, RELIABLE, Server, SessionId};

/// Maximum length of a line, in bytes.
const LINE_MAX: usize = 400;
/// Maximum lines per client and turn, because each is sent to all.
const LINES_MAX: u8 = 4;

/// A client in the room.
struct Guest {
    name: String,
    /// Lines sent in this turn.
    lines: u8,
}

/// Serves until `end` is disconnected, when stdin ends.
pub(crate) fn serve(server: &mut Server, end: &Receiver<()>) -> Result<(), Box<dyn Error>> {
    let mut guests: BTreeMap<SessionId, Guest> = BTreeMap::new();
    while end.try_recv() != Err(TryRecvError::Disconnected) {
        for guest in guests.values_mut() {
            guest.lines = 0;
        }
        for event in server.wait_tick(HZ_30)? {
            let said = hear(event, server, &mut guests);
            let Some(said) = said else { continue };
            for session in guests.keys() {
                // If a client no longer acknowledges and its queue is full, it is disconnected.
                if server.send(*session, RELIABLE, said.as_bytes()).is_err() {
                    server.disconnect(*session).ok();
                }
            }
        }
    }
    Ok(())
}

/// Returns the line to broadcast for an event.
fn hear(
    event: Event,
    server: &mut Server,
    guests: &mut BTreeMap<SessionId, Guest>,
) -> Option<String> {
    match event {
        Event::Connected { session, peer } => {
            // The room is not in open mode, so each client has a token.
            let Proof::Token(grant) = &peer.proof else {
                server.disconnect(session).ok();
                return None;
            };
            let name = String::from_utf8_lossy(&grant.user).into_owned();
            let said = format!("* {name} is here");
            guests.insert(session, Guest { name, lines: 0 });
            Some(said)
        }
        Event::Message { session, bytes, .. } => {
            let guest = guests.get_mut(&session)?;
            guest.lines = guest.lines.saturating_add(1);
            if guest.lines > LINES_MAX || bytes.len() > LINE_MAX {
                server.disconnect(session).ok();
                return None;
            }
            Some(format!("{}: {}", guest.name, printable(&bytes)))
        }
        Event::Disconnected { session, .. } => {
            let guest = guests.remove(&session)?;
            Some(format!("* {} has left", guest.name))
        }
        Event::Unreachable { .. } | Event::Settled { .. } | _ => None,
    }
}

/// Decodes text and removes control characters.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().filter(|char| !char.is_control()).collect()
}
