//! PROXY headers from an exit to a game server, which name the player behind a flow.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::Provider;
use wire::NodeId;

use super::Node;
use crate::leg::Leg;
use crate::link::LinkId;
use crate::link_state::ShortId;
use crate::proxy_header::{Ends, Subject, Tlv, TlvKind, Transport, is_like, write_block};
use crate::server_header::{HeaderExtras, HeaderTiming, ServerHeader};

/// Contents of a flow's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderState {
    /// The player's address at the entry.
    pub(super) player: SocketAddr,
    /// The entry.
    pub(super) entry: LinkId,
    /// The flow's number in this run of the node.
    pub(super) serial: u64,
}

impl ServerHeader {
    /// Whether `datagram` needs a header. `silence` is the time since the server's last datagram,
    /// `None` before the first.
    pub(super) fn is_due(self, silence: Option<Duration>, datagram: &[u8]) -> bool {
        match self.timing {
            HeaderTiming::Each => true,
            // A player's own data that looks like a header must not be the first that the server
            // reads.
            HeaderTiming::First => {
                silence.is_none_or(|silence| silence > SERVER_SILENCE) || is_like(datagram)
            }
        }
    }
}

impl<P: Provider> Node<P> {
    /// Queues a datagram to a server, with a header before it.
    pub(super) fn push_with_header(
        &mut self,
        leg: Leg,
        (header, state): (ServerHeader, HeaderState),
        datagram: &[u8],
    ) {
        let subject = Subject::Flow(Ends {
            transport: Transport::Datagram,
            source: state.player,
            destination: leg.address,
        });
        let run = self.config.instance.0.to_be_bytes();
        let session = [run, state.serial.to_be_bytes()];
        let mut nodes = [0; NODES_MAX * NODE_LEN];
        let mut tlvs = [Tlv {
            kind: TlvKind::NOOP,
            value: &[],
        }; 2];
        let mut count: usize = 0;
        let mut add = |kind, value| {
            if let Some(place) = tlvs.get_mut(count) {
                *place = Tlv { kind, value };
                count = count.saturating_add(1);
            }
        };
        if header.extras.contains(HeaderExtras::SESSION_ID) {
            add(TlvKind::SESSION_ID, session.as_flattened());
        }
        if header.extras.contains(HeaderExtras::NODES) {
            add(TlvKind::NODES, self.path_node_ids(state.entry, &mut nodes));
        }
        let tlvs = tlvs.get(..count).unwrap_or_default();
        let outbox = &mut self.plane.outbox;
        let is_queued = !outbox.is_full()
            && outbox
                .push((leg, None), |out| {
                    write_block(&subject, tlvs, header.extras.checksum(), out)?;
                    out.extend_from_slice(datagram);
                    Ok::<_, crate::proxy_header::WriteError>(())
                })
                .is_ok();
        let counter = if is_queued {
            &mut self.stats.delivered
        } else {
            &mut self.stats.outbox_full
        };
        *counter = counter.saturating_add(1);
    }

    /// Writes the short ids of the nodes between a player and this exit into `place`, the entry
    /// first.
    pub(super) fn path_node_ids<'a>(
        &self,
        entry: LinkId,
        place: &'a mut [u8; NODES_MAX * NODE_LEN],
    ) -> &'a [u8] {
        let path_set = self.path_sets.get(&entry);
        let path = path_set.and_then(|path_set| path_set.path(path_set.current?));
        let relays: &[NodeId] = path.map_or(&[], |path| &path.path.relays);
        let first = self.peers.get(entry).map(|peer| peer.node);
        // The local path leads from this exit to the entry.
        let nodes = first
            .into_iter()
            .chain(relays.iter().rev().copied().take(NODES_MAX - 2))
            .chain([self.own]);
        let mut len: usize = 0;
        for (place, node) in place.chunks_exact_mut(NODE_LEN).zip(nodes) {
            place.copy_from_slice(&ShortId::from(node).0);
            len = len.saturating_add(NODE_LEN);
        }
        place.get(..len).unwrap_or_default()
    }
}

/// Silence after which a server may have forgotten a flow's player. Sessions of `udp_proto` are
/// never silent for so long.
const SERVER_SILENCE: Duration = Duration::from_secs(2);
/// Entry, three relays, exit.
pub(super) const NODES_MAX: usize = 5;
/// Bytes of each node id.
pub(super) const NODE_LEN: usize = 8;
