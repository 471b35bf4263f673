//! Tokens of `matchmaker_core::netcode` at a client and a server of `renet_netcode`, over sockets.

use std::net::UdpSocket;
use std::time::Duration;

use crypto::Ring;
use matchmaker_core::netcode::{Dialect, NetcodeKey, NetcodeRequest, mint};
use renet::{RenetClient, RenetServer};
use renet_netcode::{
    ClientAuthentication, ConnectToken, NetcodeClientTransport, NetcodeServerTransport,
    ServerAuthentication, ServerConfig,
};
use wire::{ClientId, UnixTime};

const PROTOCOL: u64 = 7;
const SERVER_KEY: [u8; 32] = [3; 32];
const ISSUED_AT: u64 = 1_800_000_000;

/// Connects with a token of `key` after `waited`, to a server at `address`. Returns what the server knows of the
/// client, or `None` if it does not admit it.
fn connect(address: &str, key: [u8; 32], waited: Duration) -> Option<(u64, Vec<u8>)> {
    let server_socket = UdpSocket::bind(address).expect("a socket");
    let server_address = server_socket.local_addr().expect("an address");
    let request = NetcodeRequest {
        protocol_id: PROTOCOL,
        client_id: ClientId(42),
        server: server_address,
        issued_at: UnixTime::from_secs(ISSUED_AT),
        lifetime: Duration::from_secs(30),
        idle_timeout: Duration::from_secs(2),
        user_data: b"seat 3",
        dialect: Dialect::Renet,
    };
    let key = NetcodeKey::new(key).expect("a key");
    let token = mint(&mut Ring::new(), &key, &request).expect("a token");
    let connect_token = ConnectToken::read(&mut token.expose()).expect("renet reads it");

    let mut now = Duration::from_secs(ISSUED_AT) + waited;
    let config = ServerConfig {
        current_time: now,
        max_clients: 4,
        protocol_id: PROTOCOL,
        public_addresses: vec![server_address],
        authentication: ServerAuthentication::Secure {
            private_key: SERVER_KEY,
        },
    };
    let mut server = NetcodeServerTransport::new(config, server_socket).expect("a server");
    let client_socket = UdpSocket::bind(address).expect("a socket");
    let authentication = ClientAuthentication::Secure { connect_token };
    let mut client =
        NetcodeClientTransport::new(now, authentication, client_socket).expect("a client");
    let mut server_messages = RenetServer::new(peers::stack::renet::config());
    let mut client_messages = RenetClient::new(peers::stack::renet::config());
    let step = Duration::from_millis(50);
    for _turn in 0..100 {
        now += step;
        // A client with a refused token ends with an error.
        let is_over = client.update(step, &mut client_messages).is_err();
        server
            .update(step, &mut server_messages)
            .expect("the server goes on");
        if let Some(data) = server.user_data(42) {
            return Some((42, data.to_vec()));
        }
        if is_over {
            return None;
        }
        // Loopback delivers at once, but not always before the next call.
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

#[test]
fn bg6_a_renet_server_admits_a_client_with_our_token() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (client, data) = connect(address, SERVER_KEY, Duration::ZERO).expect("admitted");
        assert_eq!((client, &data[..7]), (42, &b"seat 3\0"[..]), "{address}");
    }
}

#[test]
fn bg6_a_renet_server_refuses_another_key_and_an_expired_token() {
    assert_eq!(connect("127.0.0.1:0", [4; 32], Duration::ZERO), None);
    let late = Duration::from_secs(31);
    assert_eq!(connect("127.0.0.1:0", SERVER_KEY, late), None);
}
