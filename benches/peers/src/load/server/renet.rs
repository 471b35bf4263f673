//! `renet_netcode`, as in its documentation.

use bytes::Bytes;
use renet::{DefaultChannel, RenetServer};
use renet_netcode::NetcodeServerTransport;

use super::{MESSAGE, Plan, Ticks, count, listen, socket};
use crate::stack::renet::{config, server_config};

pub(super) fn serve(plan: Plan) {
    let socket = socket();
    let address = socket.local_addr().expect("bound");
    let mut ticks = Ticks::new(plan);
    let clients = plan.clients as usize;
    let netcode = server_config(clients, core::time::Duration::ZERO, address);
    let mut transport = NetcodeServerTransport::new(netcode, socket).expect("a socket");
    let mut server = RenetServer::new(config());
    listen(address, &[]);
    loop {
        let tick = ticks.wait();
        server.update(tick.passed);
        transport
            .update(tick.passed, &mut server)
            .expect("a socket");
        while server.get_event().is_some() {}
        let mut received = 0;
        for id in server.clients_id() {
            while server
                .receive_message(id, DefaultChannel::Unreliable)
                .is_some()
            {
                received += 1;
            }
        }
        count(received);
        if tick.sends {
            server.broadcast_message(DefaultChannel::Unreliable, Bytes::copy_from_slice(&MESSAGE));
        }
        transport.send_packets(&mut server);
    }
}
