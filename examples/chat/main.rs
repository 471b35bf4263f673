//! A chat with a lobby over HTTPS and a room over encrypted UDP.
//!
//! ```text
//! chat run                                                  runs a script with all processes chat
//! server 127.0.0.1:7443 127.0.0.1:7777 --ca ca.pem     by hand: writes the certificate of an
//! authority made at the start; ends with stdin chat client 127.0.0.1:7443 ann --ca ca.pem
//! --register     by hand: the password is the first line
//! ```
//!
//! The client authenticates the lobby by its certificate: it checks chain, name and validity
//! period. The lobby checks the password and returns a grant. The grant holds the room's address
//! and identity key, and a token which opens one session within 30 s. The room verifies the token
//! by itself, without a request to the lobby.

#![expect(clippy::print_stdout, reason = "a program for people to watch")]

mod certificate;
mod http;
mod lobby;
mod room;
mod script;

use std::error::Error;
use std::io::{self, BufRead};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use certificate::Fault;
use clap::Parser;
use lobby::{ACCOUNTS_MAX, Lobby, Login, Room};
use tickwire::accounts::{Accounts, Cost, LockoutConfig, MemoryStore};
use tickwire::crypto::token::TokenKey;
use tickwire::crypto::{ClientGrant, Identity, Ring, ServerKeys};
use tickwire::udp_proto::{Listen, Target};
use tickwire::{AppId, Client, Config, Event, HZ_60, RELIABLE, SendError, Server};

const APP: AppId = AppId(0x6368_6174);

/// Chats in a room after a login over HTTPS.
#[derive(Parser)]
#[command(arg_required_else_help = true)]
enum Line {
    /// Starts a server and clients as separate processes and runs a script.
    Run,
    /// Runs lobby and room until stdin ends.
    Server {
        /// TCP address of the lobby.
        lobby: SocketAddr,
        /// UDP address of the room.
        room: SocketAddr,
        /// File to write the authority's certificate to.
        #[arg(long)]
        ca: PathBuf,
        /// File with the room's identity, created if it is missing. After a restart with the same
        /// identity, clients learn within a second that their sessions are lost. Without it, each
        /// run creates a new identity.
        #[arg(long)]
        identity: Option<PathBuf>,
        /// A fault in the lobby's certificate.
        #[arg(long, value_enum, default_value_t)]
        fault: Fault,
    },
    /// Chats; the first line of stdin is the password.
    Client {
        /// The lobby, as HOST:PORT.
        lobby: String,
        name: String,
        /// File with the certificate of the authority to trust.
        #[arg(long)]
        ca: PathBuf,
        /// Creates the account first.
        #[arg(long)]
        register: bool,
    },
}

fn main() -> ExitCode {
    tickwire_examples::end("chat", obey(Line::parse()))
}

fn obey(line: Line) -> Result<(), Box<dyn Error>> {
    match line {
        Line::Run => script::run(),
        Line::Server {
            lobby,
            room,
            ca,
            identity,
            fault,
        } => serve(lobby, (room, identity.as_deref()), (&ca, fault)),
        Line::Client {
            lobby,
            name,
            ca,
            register,
        } => talk(&lobby, name, (&ca, register)),
    }
}

fn serve(
    lobby: SocketAddr,
    (room, identity): (SocketAddr, Option<&Path>),
    (ca, fault): (&Path, Fault),
) -> Result<(), Box<dyn Error>> {
    let mut ring = Ring::new();
    let token_key = TokenKey::generate(&mut ring, 1)?;
    let mut key = None;
    let mut listen = |identity: Identity, instance| {
        key = Some(*identity.public_key());
        Listen::new(identity, instance)
    };
    let mut server = if let Some(path) = identity {
        Server::bind_kept(room, APP, Config::for_server(), path, listen)?
    } else {
        let identity = Identity::generate(&mut ring)?;
        Server::bind_with(room, APP, Config::for_server(), |instance| {
            listen(identity, instance)
        })?
    };
    let keys = key
        .and_then(|key| ServerKeys::new(&[key]))
        .ok_or("no key")?;
    server.add_token_key(token_key.clone());
    let (authority, tls) = certificate::issue(fault)?;
    let listener = TcpListener::bind(lobby)?;
    let store = MemoryStore::new(ACCOUNTS_MAX);
    let accounts = Accounts::new(store, Cost::DEFAULT, LockoutConfig::default())?;
    let lobby = Arc::new(Lobby {
        accounts: Mutex::new(accounts),
        room: Room {
            address: server.address(),
            keys,
            instance: server.instance(),
            token_key,
        },
        tls,
        open: 0.into(),
    });
    std::fs::write(ca, authority)?;
    println!("{} {}", listener.local_addr()?, server.address());
    thread::spawn(move || lobby.serve(&listener));
    let (open, end) = channel();
    thread::spawn(move || {
        io::copy(&mut io::stdin().lock(), &mut io::sink()).ok();
        drop::<std::sync::mpsc::Sender<()>>(open);
    });
    room::serve(&mut server, &end)
}

fn talk(lobby: &str, name: String, (ca, register): (&Path, bool)) -> Result<(), Box<dyn Error>> {
    let (host, port) = lobby.rsplit_once(':').ok_or("a lobby is HOST:PORT")?;
    let config = certificate::trust(&std::fs::read_to_string(ca)?)?;
    let mut password = String::new();
    io::stdin().lock().read_line(&mut password)?;
    let password = password.trim_end_matches(['\r', '\n']).to_owned();
    let login = Login { name, password };
    let page = if register { "register" } else { "login" };
    let host = host.trim_matches(['[', ']']);
    let grant = lobby::ask((host, port.parse()?), config, (page, &login))?;
    drop(login);
    send_lines(&mut enter(&grant)?, &lines())
}

/// Opens a session with the room named in the grant.
fn enter(grant: &ClientGrant) -> Result<Client, Box<dyn Error>> {
    if grant.app_id != APP.0 {
        return Err("the grant is for another game".into());
    }
    let target = Target::from(grant);
    Ok(Client::connect_to(target, APP, Config::default())?)
}

/// Reads lines of stdin on a separate thread, because the read blocks.
fn lines() -> Receiver<String> {
    let (read, lines) = channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if read.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Sends typed lines and prints received ones until stdin or the session ends.
fn send_lines(client: &mut Client, lines: &Receiver<String>) -> Result<(), Box<dyn Error>> {
    let (mut is_open, mut is_leaving) = (false, false);
    loop {
        for event in client.wait_tick(HZ_60)? {
            match event {
                Event::Connected { .. } => is_open = true,
                Event::Message { bytes, .. } => println!("{}", room::printable(&bytes)),
                Event::Unreachable { failure } => return Err(failure.to_string().into()),
                Event::Disconnected { .. } if is_leaving => return Ok(()),
                Event::Disconnected { reason, .. } => return Err(reason.to_string().into()),
                Event::Settled { .. } | _ => {}
            }
        }
        if !is_open || is_leaving {
            continue;
        }
        // At most one line per sixtieth of a second, because the room limits the rate.
        match lines.try_recv() {
            Ok(line) => match client.send(RELIABLE, line.as_bytes()) {
                Ok(()) | Err(SendError::Closed) => {}
                Err(error) => println!("* this cannot be said: {error}"),
            },
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                client.disconnect()?;
                is_leaving = true;
            }
        }
    }
}
