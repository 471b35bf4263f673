//! Players behind proxies, which say before what they pass on whom it is from.

use core::net::SocketAddr;

use crypto::Provider;

use super::Node;
use super::links::is_of_one_host;
use crate::leg::Leg;
use crate::proxy_header::{HeaderPolicy, LEN_USUAL, TrustedProxies, read_datagram};

/// What a player's address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedBy {
    /// The datagram's source, which anybody may forge.
    Source,
    /// The header of a trusted proxy, to which replies go.
    Proxy,
}

/// A datagram at a game's port.
#[derive(Debug)]
pub(super) struct ProxiedDatagram<'a> {
    /// The flow that it belongs to, where it is no new one.
    pub(super) flow: Option<u32>,
    /// Whom it is from.
    pub(super) player: SocketAddr,
    /// Who says so.
    pub(super) named_by: NamedBy,
    /// What he said.
    pub(super) datagram: &'a [u8],
}

impl<P: Provider> Node<P> {
    /// Takes the header off a datagram, where proxies stand before the game's port; `None` where what came
    /// is dropped.
    ///
    /// A proxy writes one before each datagram, whatever [`HeaderPolicy`] says: behind one that does not, a player could
    /// write his own. Each player that it names at one of its ports has a flow of his own: so whoever forges
    /// datagrams of a proxy takes nobody's flow, and holds none up.
    pub(super) fn take_header<'a>(
        &mut self,
        (leg, game): (&Leg, usize),
        datagram: &'a [u8],
    ) -> Option<ProxiedDatagram<'a>> {
        let game = self.games.get(game);
        let trusted = game.and_then(|game| self.config.proxies.get(&game.name));
        let (player, datagram) = match trusted {
            None => (leg.address, datagram),
            Some(trusted) => {
                let proxied = read(trusted, leg.address, datagram);
                if proxied.is_none() {
                    self.stats.headers_refused = self.stats.headers_refused.saturating_add(1);
                }
                proxied?
            }
        };
        Some(ProxiedDatagram {
            flow: self.flows.of_player(*leg, player),
            player,
            named_by: if player == leg.address {
                NamedBy::Source
            } else {
                NamedBy::Proxy
            },
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
    let judged = trusted.judge_by(HeaderPolicy::Required, peer.ip(), header.as_ref());
    let player = judged.ok()?.map_or(peer, |ends| ends.source);
    let proxied = datagram.get(header.map_or(0, |header| header.len)..)?;
    // The game server is told of him, and may take an address for one that it can speak to.
    is_of_one_host(player).then_some((player, proxied))
}
