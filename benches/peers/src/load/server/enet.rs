//! `rusty_enet` on a socket of the standard library.

use rusty_enet::{Event, Host, HostSettings};

use super::{MESSAGE, Plan, Ticks, count, listen, socket};
use crate::stack::Delivery;
use crate::stack::enet::{CHANNELS, channel, packet};

pub(super) fn serve(plan: Plan) {
    let socket = socket();
    let address = socket.local_addr().expect("bound");
    let settings = HostSettings {
        peer_limit: plan.clients as usize,
        channel_limit: CHANNELS,
        ..HostSettings::default()
    };
    let Ok(mut host) = Host::new(socket, settings) else {
        panic!("a host that is allowed");
    };
    listen(address, &[]);
    let mut ticks = Ticks::new(plan);
    loop {
        let tick = ticks.wait();
        let mut received = 0;
        while let Some(event) = host.service().expect("a socket") {
            received += u64::from(matches!(event, Event::Receive { .. }));
        }
        count(received);
        if tick.sends {
            let delivery = Delivery::Unreliable;
            // One packet shared by all; enet counts the references.
            host.broadcast(channel(delivery), &packet(delivery, &MESSAGE));
        }
        host.flush();
    }
}
