//! Channels and reassembly, with arbitrary frames of an authenticated peer.

use core::time::Duration;

use udp_proto::fragment::{FRAGMENT_LEN, UNRELIABLE_BUDGET};
use udp_proto::frame::{Frame, Frames};
use udp_proto::inbox::Inbox;
use udp_proto::{ChannelConfig, ChannelTable};
use wire::{Instant, Reader, Truncated};

/// Flow control window: bytes that the peer may send before any are read.
const WINDOW: usize = 128 << 10;

/// Returns one channel of each kind; the first two are as in the default table.
pub(crate) fn channels() -> ChannelTable {
    let rows = [
        ChannelConfig::unreliable(),
        ChannelConfig::reliable_ordered(),
        ChannelConfig::sequenced(),
        ChannelConfig::reliable_unordered(),
    ];
    ChannelTable::new(&rows).expect("four sound rows")
}

/// Receives frames, reads, waits and grants credit as the input says. Memory stays within its
/// bounds, and at most the granted bytes are accepted.
pub fn apply(data: &[u8]) {
    let table = channels();
    let mut inbox = Inbox::new(table.clone(), WINDOW, 0);
    let (mut now, mut message) = (Instant::ZERO, Vec::new());
    let mut reader = Reader::new(data);
    while let Ok(op) = reader.u8() {
        let step = match op & 7 {
            0 => {
                now += Duration::from_millis(u64::from(op));
                inbox.handle_timeout(now);
                Ok(())
            }
            1 => {
                (0..=op >> 3).for_each(|_| {
                    inbox.recv(&mut message);
                });
                Ok(())
            }
            2 => {
                if let Some(grant) = inbox.window_to_send() {
                    inbox.on_window_sent(grant);
                    inbox.on_window_lost(grant.saturating_sub(u64::from(op >> 7)));
                }
                Ok(())
            }
            _ => plaintext(op, &mut reader)
                .map(|plaintext| take(now, &table, &mut inbox, &plaintext)),
        };
        // An error ends the session; the end of the input does too.
        if !matches!(step, Ok(())) {
            break;
        }
        assert!(inbox.reassembly_charged() <= UNRELIABLE_BUDGET);
        let bound = 2 * WINDOW + 2 * UNRELIABLE_BUDGET * 8 / 5;
        assert!(inbox.memory() < bound, "{} bytes", inbox.memory());
    }
    while inbox.recv(&mut message).is_some() {}
    inbox.shrink();
}

/// Reads the next plaintext: a length and bytes. `op` may append zeros, so that short inputs
/// contain whole fragments.
fn plaintext(op: u8, reader: &mut Reader<'_>) -> Result<Vec<u8>, Truncated> {
    let len = usize::from(reader.u8()?);
    let mut plaintext = reader.bytes(len.min(reader.len()))?.to_vec();
    if op & 8 != 0 {
        plaintext.resize(plaintext.len() + FRAGMENT_LEN, 7);
    }
    Ok(plaintext)
}

fn take(now: Instant, table: &ChannelTable, inbox: &mut Inbox, plaintext: &[u8]) {
    for frame in Frames::new(plaintext, table) {
        let Ok(frame) = frame else { return };
        if let Frame::Message(message) = frame
            && inbox.on_message(now, &message).is_err()
        {
            // The error ends this session; a new one starts.
            *inbox = Inbox::new(table.clone(), WINDOW, 0);
            return;
        }
    }
}
