//! PROXY headers at the entry: the player's address from a trusted proxy.

use core::net::SocketAddr;

use crypto::Provider;

use super::Node;
use super::links::is_of_one_host;
use crate::leg::Leg;
use crate::proxy_header::{HeaderPolicy, LEN_USUAL, TrustedProxies, read_datagram};

/// The source of a player's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedBy {
    /// The datagram's source address, which can be forged.
    Source,
    /// The header of a trusted proxy; replies go to the proxy.
    Proxy,
}

/// A datagram at a game's port, without its header.
#[derive(Debug)]
pub(super) struct ProxiedDatagram<'a> {
    /// Its flow; `None` for a new one.
    pub(super) flow: Option<u32>,
    /// The player's address.
    pub(super) player: SocketAddr,
    /// Where the address is from.
    pub(super) named_by: NamedBy,
    /// The payload.
    pub(super) datagram: &'a [u8],
}

impl<P: Provider> Node<P> {
    /// Removes the header of a datagram if the game's port is behind proxies. `None` if it is
    /// dropped.
    ///
    /// A proxy must write a header before each datagram, whatever [`HeaderPolicy`] says; otherwise
    /// a player could write one. Each player address at each port of a proxy has its own flow, so
    /// forged datagrams of a proxy neither take over nor block another flow.
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

/// The player's address and the payload; `None` if the header is not accepted.
fn read<'a>(
    trusted: &TrustedProxies,
    peer: SocketAddr,
    datagram: &'a [u8],
) -> Option<(SocketAddr, &'a [u8])> {
    let header = read_datagram(datagram, LEN_USUAL).ok()?;
    let judged = trusted.judge_by(HeaderPolicy::Required, peer.ip(), header.as_ref());
    let player = judged.ok()?.map_or(peer, |ends| ends.source);
    let proxied = datagram.get(header.map_or(0, |header| header.len)..)?;
    // The game server receives this address and may send to it.
    is_of_one_host(player).then_some((player, proxied))
}
