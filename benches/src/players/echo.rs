//! The senders to the bare loops: a socket per player, and one datagram per tick in each direction.

use core::net::SocketAddr;
use std::net::UdpSocket;

use super::Plan;
use super::child::Tally;
use super::clients::spread;
use super::ticker::Ticker;

/// Sends datagrams of `len` bytes until the process ends, spread over the tick like those of
/// players.
///
/// # Panics
///
/// If the system lacks a socket for a player.
pub fn send(plan: Plan, (address, len): (SocketAddr, usize), tally: &Tally) {
    let open = |_| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.connect(address).expect("a route");
        socket.set_nonblocking(true).expect("a socket");
        socket
    };
    let mut sockets: Vec<UdpSocket> = (0..plan.players()).map(open).collect();
    let mut pace = Ticker::new(plan.period());
    let (datagram, mut buffer) = (vec![0x5A; len], vec![0; 2_048]);
    loop {
        let begun = pace.wait();
        spread(&pace, (begun, plan.period()), &mut sockets, |socket, _| {
            tally.add_turns(u32::from(socket.recv(&mut buffer).is_ok()));
            tally.turn_taken();
            socket.send(&datagram).ok();
        });
    }
}
