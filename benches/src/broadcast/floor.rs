//! Bare write loops to sockets.

use core::time::Duration;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use mio::{Events, Interest, Poll, Token};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use super::{MESSAGE_LEN, WIRE_LEN};
use crate::measure::cpu_time_of;

/// Writes prepared bytes to each socket, without TLS, queue or wait.
#[derive(Debug)]
pub struct PlainLoop(Vec<TcpStream>);

impl PlainLoop {
    /// Opens `count` connections. A thread reads the other ends.
    ///
    /// # Errors
    ///
    /// If the system lacks sockets, or a thread, for them.
    pub fn new(count: usize) -> io::Result<Self> {
        let (near, far) = connections(count)?;
        drain("drain-plain", far)?;
        Ok(Self(near))
    }

    /// Writes one message to each. Returns the CPU time.
    pub fn broadcast(&mut self) -> Duration {
        let record = [0x5A; WIRE_LEN];
        cpu_time_of(|| {
            for socket in &mut self.0 {
                socket.write_all(&record).expect("somebody reads");
            }
        })
    }
}

/// The same with a TLS session per connection: encrypts and writes.
#[derive(Debug)]
pub struct TlsLoop(Vec<(ServerConnection, TcpStream)>);

impl TlsLoop {
    /// Opens `count` sessions. A thread reads the other ends without decryption.
    ///
    /// # Errors
    ///
    /// If the system lacks sockets, or a thread, for them.
    pub fn new(count: usize) -> Result<Self, Box<dyn std::error::Error>> {
        let (server, client) = configs()?;
        let (near, far) = connections(count)?;
        let mut sessions = Vec::with_capacity(count);
        for (mut near, mut far) in near.into_iter().zip(far.iter()) {
            let mut ours = ServerConnection::new(Arc::clone(&server))?;
            let name = ServerName::try_from("floor.example")?;
            let mut theirs = ClientConnection::new(Arc::clone(&client), name)?;
            while ours.is_handshaking() || theirs.is_handshaking() {
                while theirs.wants_write() {
                    theirs.write_tls(&mut far)?;
                }
                while ours.is_handshaking() && ours.wants_read() {
                    ours.read_tls(&mut near)?;
                    ours.process_new_packets()?;
                }
                while ours.wants_write() {
                    ours.write_tls(&mut near)?;
                }
                while theirs.is_handshaking() && theirs.wants_read() {
                    theirs.read_tls(&mut far)?;
                    theirs.process_new_packets()?;
                }
            }
            sessions.push((ours, near));
        }
        drain("drain-tls", far)?;
        Ok(Self(sessions))
    }

    /// Writes one message to each. Returns the CPU time.
    pub fn broadcast(&mut self) -> Duration {
        // As long as a message's record with its prefix.
        let message = [0x5A; 4 + 1 + MESSAGE_LEN];
        cpu_time_of(|| {
            for (tls, socket) in &mut self.0 {
                tls.writer().write_all(&message).expect("there is room");
                while tls.wants_write() {
                    tls.write_tls(socket).expect("somebody reads");
                }
            }
        })
    }
}

/// Returns the TLS configurations of both ends, with a new certificate.
fn configs() -> Result<(Arc<ServerConfig>, Arc<ClientConfig>), Box<dyn std::error::Error>> {
    let key = rcgen::KeyPair::generate()?;
    let names = vec!["floor.example".to_owned()];
    let certificate = rcgen::CertificateParams::new(names)?.self_signed(&key)?;
    let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone())?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = [&rustls::version::TLS13];
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    server.send_tls13_tickets = 0;
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((Arc::new(server), Arc::new(client)))
}

/// Opens loopback connections and returns both ends of each.
fn connections(count: usize) -> io::Result<(Vec<TcpStream>, Vec<TcpStream>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut ends = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in 0..count {
        let far = TcpStream::connect(address)?;
        let (near, _) = listener.accept()?;
        near.set_nodelay(true)?;
        ends.0.push(near);
        ends.1.push(far);
    }
    Ok(ends)
}

/// Reads from the sockets on a separate thread until the process ends.
fn drain(name: &str, sockets: Vec<TcpStream>) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut sources = Vec::with_capacity(sockets.len());
    for (place, socket) in sockets.into_iter().enumerate() {
        socket.set_nonblocking(true)?;
        let mut source = mio::net::TcpStream::from_std(socket);
        let registry = poll.registry();
        registry.register(&mut source, Token(place), Interest::READABLE)?;
        sources.push(source);
    }
    let work = move || {
        let mut events = Events::with_capacity(1_024);
        let mut buffer = vec![0; 64 << 10];
        while poll.poll(&mut events, None).is_ok() {
            for event in &events {
                let Some(source) = sources.get_mut(event.token().0) else {
                    continue;
                };
                while matches!(source.read(&mut buffer), Ok(1..)) {}
            }
        }
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)?;
    Ok(())
}
