//! Loss of a session's first packets, on links without other loss.

use core::time::Duration;

use udp_proto::Config;

use crate::direct::{START, without_rate_limits};
use crate::harness::RELIABLE;
use crate::link::Link;

/// Drops the first packets after the handshake of one side, the client if `by_client`.
fn early((by_client, mut count): (bool, usize)) -> impl FnMut(bool, &[u8]) -> bool {
    move |from_client, bytes| {
        let is_taken = by_client == from_client && bytes[0] < 0x80 && count > 0;
        count -= usize::from(is_taken);
        is_taken
    }
}

/// The server's first packets are lost, and it has much to send to a silent client: its send limit
/// must not depend on bytes that such a client never sends.
#[test]
fn three_lost_datagrams_at_the_start_only_delay_a_token_session() {
    for lost in 0..4 {
        for first in [300, 600, 850, 900, 1_000] {
            let mut link = Link::new(11, without_rate_limits(), early((false, lost)));
            let end = START + Duration::from_secs(3);
            let mut is_tracked = false;
            while link.line.now < end && link.line.client.messages.len() < 2 {
                if !is_tracked && let Some(theirs) = link.accepted() {
                    is_tracked = true;
                    for message in [vec![1; first], vec![2; 1_100]] {
                        let now = link.line.now;
                        let server = &mut link.line.server.machine;
                        server.send(now, theirs, RELIABLE, &message).unwrap();
                        link.collect();
                    }
                }
                link.step(end);
            }
            let case = format!("{lost} lost, {first} B");
            assert_eq!(link.closes(), [], "{case}");
            assert_eq!(link.line.client.messages.len(), 2, "{case}");
        }
    }
}

/// The client's first packets are lost, and all later ones are full. CONFIRM still gets room;
/// without it the server ignores them.
#[test]
fn confirm_is_repeated_despite_queued_messages() {
    for lost in 0..4 {
        let mut link = Link::new(12, Config::default(), early((true, lost)));
        let end = START + Duration::from_secs(3);
        let mut next_at = START;
        while link.line.now < end && link.line.server.messages.is_empty() {
            let now = link.line.now;
            if let Some(session) = link.dialled()
                && now >= next_at
            {
                // More than its rate, and no message leaves room for CONFIRM.
                next_at = now + Duration::from_millis(10);
                let client = &mut link.line.client.machine;
                for _ in 0..3 {
                    client.send(now, session, RELIABLE, &[7; 1_160]).ok();
                }
            }
            let until = if link.dialled().is_some() {
                next_at
            } else {
                end
            };
            link.step(until.max(now + Duration::from_millis(1)));
        }
        assert_eq!(link.closes(), [], "{lost} lost");
        assert!(!link.line.server.messages.is_empty(), "{lost} lost");
    }
}
