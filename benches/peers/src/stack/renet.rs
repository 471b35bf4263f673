//! renet over renetcode, joined as in `renet_netcode` but without sockets.
//!
//! Default channels, without the limit of bytes per tick, so that 64 KiB can be sent at once.

use core::net::SocketAddr;
use core::time::Duration;

use bytes::Bytes;
use renet::{ConnectionConfig, DefaultChannel, RenetClient, RenetServer};
use renetcode::{
    ClientAuthentication, ConnectToken, NetcodeClient, NetcodeServer, ServerAuthentication,
    ServerConfig, ServerResult,
};

use super::{Delivery, End, SERVER, Stack};
use crate::lane::Lane;

/// Connect tokens, ChaCha20-Poly1305.
#[derive(Debug)]
pub struct Renet;

/// The key that seals tokens.
pub const PRIVATE_KEY: [u8; 32] = [0x42; 32];
/// The protocol id of all benches.
pub const PROTOCOL: u64 = 0x62_656e_6368;
/// Maximum clients in renetcode.
pub const CLIENTS_MAX: usize = 1_024;

/// The configuration of both ends.
pub fn config() -> ConnectionConfig {
    ConnectionConfig {
        available_bytes_per_tick: 1 << 24,
        server_channels_config: DefaultChannel::config(),
        client_channels_config: DefaultChannel::config(),
    }
}

/// Returns what a matchmaker issues to client `number`.
pub fn authentication(number: u32, now: Duration, server: SocketAddr) -> ClientAuthentication {
    let client_id = u64::from(number);
    let servers = vec![server];
    ClientAuthentication::Secure {
        connect_token: ConnectToken::generate(
            now,
            PROTOCOL,
            300,
            client_id,
            15,
            servers,
            None,
            &PRIVATE_KEY,
        )
        .expect("a token"),
    }
}

/// Returns the server configuration for `renet_netcode`.
pub fn server_config(clients: usize, now: Duration, address: SocketAddr) -> ServerConfig {
    ServerConfig {
        current_time: now,
        max_clients: clients.min(CLIENTS_MAX),
        protocol_id: PROTOCOL,
        public_addresses: vec![address],
        authentication: ServerAuthentication::Secure {
            private_key: PRIVATE_KEY,
        },
    }
}

/// Returns the channel for a delivery.
pub const fn channel(delivery: Delivery) -> DefaultChannel {
    match delivery {
        Delivery::Unreliable => DefaultChannel::Unreliable,
        Delivery::Reliable | Delivery::Bulk => DefaultChannel::ReliableOrdered,
    }
}

impl Stack for Renet {
    const NAME: &'static str = "renet";
    type Server = Server;
    type Client = Client;

    fn server(clients: usize) -> Server {
        Server {
            netcode: NetcodeServer::new(server_config(clients, Duration::ZERO, SERVER)),
            connections: RenetServer::new(config()),
            replies: Lane::default(),
            settled_at: Duration::ZERO,
            received: 0,
        }
    }

    fn connect_data(_: &Server) -> Vec<u8> {
        Vec::new()
    }

    fn dial(_: &[u8], server: SocketAddr, number: u32, now: Duration) -> Client {
        Client {
            netcode: NetcodeClient::new(now, authentication(number, now, server)).expect("a token"),
            connection: RenetClient::new(config()),
            replies: Lane::default(),
            settled_at: now,
            received: 0,
        }
    }
}

/// A server and its netcode.
#[derive(Debug)]
pub struct Server {
    netcode: NetcodeServer,
    connections: RenetServer,
    /// netcode's own datagrams.
    replies: Lane,
    settled_at: Duration,
    received: u64,
}

/// Handles a result of netcode.
fn handle(result: ServerResult<'_, '_>, server: &mut RenetServer, replies: &mut Lane) {
    match result {
        ServerResult::None => {}
        ServerResult::PacketToSend { addr, payload } => replies.copy(addr, payload),
        ServerResult::Payload { client_id, payload } => {
            server
                .process_packet_from(payload, client_id)
                .expect("connected");
        }
        ServerResult::ClientConnected {
            client_id,
            addr,
            payload,
            ..
        } => {
            server.add_connection(client_id);
            replies.copy(addr, payload);
        }
        ServerResult::ClientDisconnected {
            client_id,
            addr,
            payload,
        } => {
            server.remove_connection(client_id);
            if let Some(payload) = payload {
                replies.copy(addr, payload);
            }
        }
    }
}

impl End for Server {
    fn take(&mut self, _: Duration, from: SocketAddr, datagram: &mut [u8]) {
        let result = self.netcode.process_packet(from, datagram);
        handle(result, &mut self.connections, &mut self.replies);
    }

    fn settle(&mut self, now: Duration) {
        let passed = now.saturating_sub(core::mem::replace(&mut self.settled_at, now));
        self.netcode.update(passed);
        self.connections.update(passed);
        for id in self.netcode.clients_id() {
            let result = self.netcode.update_client(id);
            handle(result, &mut self.connections, &mut self.replies);
        }
        for id in self.connections.clients_id() {
            for delivery in [Delivery::Unreliable, Delivery::Reliable] {
                while self
                    .connections
                    .receive_message(id, channel(delivery))
                    .is_some()
                {
                    self.received += 1;
                }
            }
        }
    }

    fn send(&mut self, _: Duration, delivery: Delivery, message: &[u8]) {
        for id in self.connections.clients_id() {
            let message = Bytes::copy_from_slice(message);
            self.connections
                .send_message(id, channel(delivery), message);
        }
    }

    fn drain(&mut self, _: Duration, lane: &mut Lane) {
        self.replies
            .deliver(|destination, datagram| lane.copy(destination, datagram));
        for id in self.connections.clients_id() {
            let packets = self.connections.get_packets_to_send(id).expect("connected");
            for packet in packets {
                let (address, sealed) = self
                    .netcode
                    .generate_payload_packet(id, &packet)
                    .expect("connected");
                lane.copy(address, sealed);
            }
        }
    }

    fn close(&mut self, _: Duration) {
        for id in self.netcode.clients_id() {
            let result = self.netcode.disconnect(id);
            handle(result, &mut self.connections, &mut self.replies);
        }
    }

    fn connections(&self) -> usize {
        self.connections.connected_clients()
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn shrink(&mut self) {
        self.replies = Lane::default();
    }
}

/// A client and its netcode.
#[derive(Debug)]
pub struct Client {
    netcode: NetcodeClient,
    connection: RenetClient,
    /// netcode's own datagrams.
    replies: Lane,
    settled_at: Duration,
    received: u64,
}

impl End for Client {
    fn take(&mut self, _: Duration, _: SocketAddr, datagram: &mut [u8]) {
        if let Some(payload) = self.netcode.process_packet(datagram) {
            self.connection.process_packet(payload);
        }
    }

    fn settle(&mut self, now: Duration) {
        let passed = now.saturating_sub(core::mem::replace(&mut self.settled_at, now));
        self.connection.update(passed);
        if let Some((datagram, address)) = self.netcode.update(passed) {
            self.replies.copy(address, datagram);
        }
        if self.netcode.is_connected() {
            self.connection.set_connected();
        }
        for delivery in [Delivery::Unreliable, Delivery::Reliable] {
            while self.connection.receive_message(channel(delivery)).is_some() {
                self.received += 1;
            }
        }
    }

    fn send(&mut self, _: Duration, delivery: Delivery, message: &[u8]) {
        if self.netcode.is_connected() {
            let message = Bytes::copy_from_slice(message);
            self.connection.send_message(channel(delivery), message);
        }
    }

    fn drain(&mut self, _: Duration, lane: &mut Lane) {
        self.replies
            .deliver(|destination, datagram| lane.copy(destination, datagram));
        if !self.netcode.is_connected() {
            return;
        }
        for packet in self.connection.get_packets_to_send() {
            let (address, sealed) = self
                .netcode
                .generate_payload_packet(&packet)
                .expect("connected");
            lane.copy(address, sealed);
        }
    }

    fn close(&mut self, _: Duration) {
        if let Ok((address, datagram)) = self.netcode.disconnect() {
            self.replies.copy(address, datagram);
        }
    }

    fn connections(&self) -> usize {
        usize::from(self.netcode.is_connected())
    }

    fn received(&self) -> u64 {
        self.received
    }

    fn shrink(&mut self) {
        self.replies = Lane::default();
    }
}
