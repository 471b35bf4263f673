//! The lobby: accounts over HTTPS. A login returns a grant, which opens one UDP session with the
//! room.

use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned,
};
use serde::{Deserialize, Serialize};
use tickwire::accounts::{AccountError, AccountName, Accounts, MemoryStore, Password};
use tickwire::crypto::token::TokenKey;
use tickwire::crypto::{
    AddressList, ClientGrant, Provider, Ring, Secret32, ServerKeys, TokenGrant, UserData,
};
use tickwire::servicer::Clock;
use wire::{ClientId, InstanceId, MatchId, Seat, Team, UnixTime};

use crate::APP;
use crate::http::{self, Hurried};

/// Maximum concurrent connections. Further ones are closed at once.
const CONNECTIONS_MAX: u16 = 32;
/// Maximum number of accounts. They are kept in memory only.
pub(crate) const ACCOUNTS_MAX: usize = 10_000;
/// Lifetime of a grant.
const LIFETIME: Duration = Duration::from_secs(30);

/// A client's request.
#[derive(Deserialize, Serialize)]
pub(crate) struct Login {
    pub(crate) name: String,
    pub(crate) password: String,
}

/// The lobby's response.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    /// The grant, as text.
    Grant(String),
    /// An error message.
    Error(String),
}

/// The room's address, and the key that seals its tokens.
pub(crate) struct Room {
    pub(crate) address: SocketAddr,
    pub(crate) keys: ServerKeys,
    pub(crate) instance: InstanceId,
    pub(crate) token_key: TokenKey,
}

/// State shared by the connection threads.
pub(crate) struct Lobby {
    /// Password hashes are computed under the lock, one at a time. No thread here has a tick to
    /// meet.
    pub(crate) accounts: Mutex<Accounts<MemoryStore>>,
    pub(crate) room: Room,
    pub(crate) tls: Arc<ServerConfig>,
    pub(crate) open: AtomicU16,
}

impl Lobby {
    /// Accepts connections until the process ends, each on its own thread.
    pub(crate) fn serve(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // If file descriptors have run out, an immediate retry would spin.
                thread::park_timeout(Duration::from_millis(100));
                continue;
            };
            if self.open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                self.open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let lobby = Arc::clone(self);
            thread::spawn(move || {
                // A peer that does not speak TLS or HTTP is not worth reporting.
                lobby.talk(stream).ok();
                lobby.open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    fn talk(&self, stream: TcpStream) -> Result<(), Box<dyn Error>> {
        let tls = ServerConnection::new(Arc::clone(&self.tls))?;
        let mut stream = StreamOwned::new(tls, Hurried::new(stream));
        let (line, body) = http::read(&mut stream)?;
        let (status, answer) = match self.answer(&line, &body) {
            Ok(grant) => ("200 OK", Answer::Grant(grant)),
            Err((status, why)) => (status, Answer::Error(why)),
        };
        let body = serde_json::to_string(&answer)?;
        http::write(&mut stream, &format!("HTTP/1.1 {status}"), &body)?;
        stream.conn.send_close_notify();
        stream.conn.complete_io(&mut stream.sock)?;
        Ok(())
    }

    /// Handles a request. Returns a grant, or an HTTP status and the reason.
    fn answer(&self, line: &str, body: &str) -> Result<String, (&'static str, String)> {
        let is_new = match line {
            "POST /register HTTP/1.1" => true,
            "POST /login HTTP/1.1" => false,
            _ => return Err(("404 Not Found", "no such page".to_owned())),
        };
        let bad = |why: &dyn std::fmt::Display| ("400 Bad Request", why.to_string());
        let login: Login = serde_json::from_str(body).map_err(|_| bad(&"no such request"))?;
        let password = Password::new(login.password).map_err(|why| bad(&why))?;
        let name: AccountName = login.name.parse().map_err(|why| bad(&why))?;
        let now = Clock::new().unix_time();
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = if is_new {
            accounts.create(&name, &password)
        } else {
            accounts.verify(now, &name, &password)
        };
        drop(accounts);
        outcome.map_err(|error| {
            let status = match error {
                AccountError::Taken => "409 Conflict",
                AccountError::Refused => "401 Unauthorized",
                AccountError::Locked { .. } => "429 Too Many Requests",
                AccountError::Store(_) | AccountError::Hash | _ => "503 Service Unavailable",
            };
            (status, error.to_string())
        })?;
        self.grant(now, &name)
            .map_err(|error| ("503 Service Unavailable", error.to_string()))
    }

    /// Seals a token for the room. `name` becomes the player's name there.
    fn grant(&self, now: UnixTime, name: &AccountName) -> Result<String, Box<dyn Error>> {
        let mut ring = Ring::new();
        let hash = ring.sha256(&[name.as_str().as_bytes()]);
        let id = hash.first_chunk().copied().unwrap_or_default();
        let expires_at = UnixTime::from_secs((now + LIFETIME).as_secs());
        let psk = Secret32::random(&mut ring)?;
        let addresses = AddressList::new(&[self.room.address])?;
        let token = TokenGrant {
            issued_at: now,
            expires_at,
            client_id: ClientId(u64::from_be_bytes(id)),
            psk: psk.clone(),
            server_id: self.room.instance,
            addresses: addresses.clone(),
            match_id: MatchId([0; 16]),
            seat: Seat(0),
            team: Team(0),
            user: UserData::new(name.as_str().as_bytes())?,
        };
        let token = self.room.token_key.seal(&mut ring, APP.0, &token)?;
        let grant = ClientGrant {
            app_id: APP.0,
            expires_at,
            psk,
            server_keys: self.room.keys.clone(),
            addresses,
            token,
        };
        Ok(grant.to_text().to_string())
    }
}

/// Requests a grant from the lobby at `host`:`port`. The lobby's certificate must name `host` and
/// chain to an authority that `config` trusts.
pub(crate) fn ask(
    (host, port): (&str, u16),
    config: Arc<ClientConfig>,
    (page, login): (&str, &Login),
) -> Result<ClientGrant, Box<dyn Error>> {
    let name = ServerName::try_from(host.to_owned())?;
    let tls = ClientConnection::new(config, name)?;
    let stream = Hurried::new(TcpStream::connect((host, port))?);
    let mut stream = StreamOwned::new(tls, stream);
    let line = format!("POST /{page} HTTP/1.1");
    let answer = http::write(&mut stream, &line, &serde_json::to_string(login)?)
        .and_then(|()| http::read(&mut stream));
    let (_, body) = answer.map_err(|error| believe(&error))?;
    match serde_json::from_str(&body)? {
        Answer::Grant(text) => Ok(text.parse()?),
        Answer::Error(why) => Err(why.into()),
    }
}

/// Returns a message which distinguishes an untrusted lobby from an unreachable one.
fn believe(error: &io::Error) -> String {
    match error.get_ref().and_then(|cause| cause.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(why)) => {
            format!("the lobby is not believed: {}", doubt(why))
        }
        _ => format!("the lobby cannot be asked: {error}"),
    }
}

/// Describes a certificate error.
const fn doubt(why: &CertificateError) -> &'static str {
    use CertificateError as Why;
    if matches!(why, Why::UnknownIssuer) {
        "its certificate is of no authority that is trusted here"
    } else if matches!(why, Why::Expired | Why::ExpiredContext { .. }) {
        "the time of its certificate is over"
    } else if matches!(why, Why::NotValidYet | Why::NotValidYetContext { .. }) {
        "the time of its certificate has not come"
    } else if matches!(
        why,
        Why::NotValidForName | Why::NotValidForNameContext { .. }
    ) {
        "its certificate is for another host"
    } else if matches!(why, Why::BadSignature) {
        "the signature of its certificate is wrong"
    } else {
        "its certificate cannot be checked"
    }
}
