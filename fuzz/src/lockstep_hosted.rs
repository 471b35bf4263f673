//! Datagrams between the players of a match which one of them hosts.

use lockstep::bundle;
use lockstep::message::{HostedMessage, MESH_SEATS_MAX, VERSION, decode_hosted};

use crate::lockstep_mesh::{is_within, shaped, write_numbers, write_ticks};

/// Decodes a datagram, after three bytes for seats and width. An accepted datagram is in canonical
/// encoding and contains only seats of the match and possible views.
pub fn datagram(data: &[u8]) {
    let Some((shape, datagram)) = shaped(data) else {
        return;
    };
    let Ok(message) = decode_hosted(datagram, shape) else {
        return;
    };
    let mut out = Vec::new();
    match message {
        HostedMessage::Presence(presence) => {
            assert!(presence.members != 0 && is_within(presence.members, shape));
            assert!(u16::from(presence.epoch) < MESH_SEATS_MAX);
            out.extend_from_slice(&[0x50, VERSION, presence.epoch]);
            write_numbers(&mut out, [presence.members]);
            out.push(presence.host_suspected.into());
        }
        HostedMessage::Leave => out.push(0x51),
        HostedMessage::Statement { epoch, statement } => {
            assert_ne!(statement.members, statement.suspects);
            assert!(is_within(statement.members | statement.leaving, shape));
            out.extend_from_slice(&[0x52, epoch]);
            write_numbers(&mut out, [statement.members, statement.suspects]);
            write_numbers(&mut out, [statement.leaving]);
            let staying = statement.members & !statement.suspects;
            write_ticks(&mut out, &statement.held, staying, shape);
        }
        HostedMessage::Decision { epoch, decision } => {
            assert!(decision.next != 0 && decision.next != decision.members);
            assert!(is_within(decision.members | decision.leaving, shape));
            out.extend_from_slice(&[0x53, epoch]);
            write_numbers(
                &mut out,
                [decision.members, decision.next, decision.leaving],
            );
            write_ticks(&mut out, &decision.cuts, decision.next, shape);
        }
        HostedMessage::Ask { first } => {
            out.push(0x54);
            out.extend_from_slice(&first.0.to_be_bytes());
        }
        HostedMessage::Forward { first, bundles } => {
            out.push(0x55);
            out.extend_from_slice(&first.0.to_be_bytes());
            for bundle in bundles.iter() {
                assert!((1..=shape.bundle_len_max()).contains(&bundle.len()));
                assert_eq!(bundle::check(bundle, shape), Ok(bundle.len()));
                out.extend_from_slice(bundle);
            }
        }
    }
    assert_eq!(out, datagram, "two ways: {message:?}");
}
