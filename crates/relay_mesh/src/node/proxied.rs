//! Players behind proxies, which say before what they pass on whom it is from.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::Provider;
use wire::Instant;

use super::Node;
use super::links::is_of_one_host;
use crate::flow_message::FlowEnd;
use crate::leg::Leg;
use crate::proxy_header::{LEN_USUAL, Need, TrustedProxies, read_datagram};

/// A datagram at a game's port.
#[derive(Debug)]
pub(super) struct Said<'a> {
    /// The flow that it belongs to, where it is no new one.
    pub(super) flow: Option<u32>,
    /// Whom it is from.
    pub(super) player: SocketAddr,
    /// What he said.
    pub(super) datagram: &'a [u8],
}

impl<P: Provider> Node<P> {
    /// Takes the header off a datagram, where proxies stand before the game's port; `None` where what came
    /// is dropped.
    ///
    /// A proxy writes one before each datagram, whatever [`Need`] says: behind one that does not, a player could
    /// write his own. When it says that its port is another player's, it is, once the one before has been silent
    /// for [`HANDOVER`]: datagrams may come out of order.
    pub(super) fn take_header<'a>(
        &mut self,
        now: Instant,
        (leg, game): (&Leg, usize),
        datagram: &'a [u8],
    ) -> Option<Said<'a>> {
        let flow = self.flows.of_player(leg);
        let game = self.config.games.get(game);
        let trusted = game.and_then(|game| self.config.proxies.get(&game.name));
        let Some(trusted) = trusted else {
            return Some(Said {
                flow,
                player: leg.address,
                datagram,
            });
        };
        let known = flow.and_then(|index| Some((index, self.flows.get(index)?)));
        let said = read(trusted, leg.address, datagram);
        let others = said.and_then(|(player, _)| known.filter(|(_, flow)| flow.player != player));
        let is_held =
            others.is_some_and(|(_, flow)| now.saturating_since(flow.heard_at) < HANDOVER);
        let others = others.map(|(index, _)| index);
        let Some((player, datagram)) = said.filter(|_| !is_held) else {
            self.stats.headers_refused = self.stats.headers_refused.saturating_add(1);
            return None;
        };
        if let Some(index) = others {
            self.close_flow(now, index, FlowEnd::Idle);
        }
        Some(Said {
            flow: flow.filter(|_| others.is_none()),
            player,
            datagram,
        })
    }
}

/// Whom a datagram from `peer` is from, and what is said; `None` where neither is believed.
fn read<'a>(
    trusted: &TrustedProxies,
    peer: SocketAddr,
    datagram: &'a [u8],
) -> Option<(SocketAddr, &'a [u8])> {
    let header = read_datagram(datagram, LEN_USUAL).ok()?;
    let judged = trusted.judge_by(Need::Required, peer.ip(), header.as_ref());
    let player = judged.ok()?.map_or(peer, |ends| ends.source);
    let said = datagram.get(header.map_or(0, |header| header.len)..)?;
    // The game server is told of him, and may take an address for one that it can speak to.
    is_of_one_host(player).then_some((player, said))
}

/// Silence of a player after which a proxy's port is given to another: longer than datagrams are late for.
const HANDOVER: Duration = Duration::from_secs(1);
