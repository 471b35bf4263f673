//! Servers as processes: started in a fresh folder, and ended when dropped.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Result;
use crate::sample::now;

/// A server process. Dropping it ends the process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Its port on 127.0.0.1.
    pub port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Certificate files of a TLS server on 127.0.0.1.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Its chain, which is also the authority to trust.
    pub chain: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Certificate {
    /// Writes a self-signed certificate into `folder`.
    pub fn create(folder: &Path) -> Result<Self> {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names)?;
        let (chain, key) = (folder.join("server.pem"), folder.join("server.key"));
        fs::write(&chain, made.cert.pem())?;
        fs::write(&key, made.signing_key.serialize_pem())?;
        Ok(Self { chain, key })
    }
}

/// Returns a port that is free now.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// How often a NATS server syncs its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Its default: every two minutes.
    Default,
    /// Before each acknowledgement.
    Always,
}

/// Starts nats-server with `JetStream` in `folder`.
pub fn nats(
    program: &Path,
    folder: &Path,
    sync: Sync,
    certificate: Option<&Certificate>,
) -> Result<Server> {
    let port = free_port()?;
    let store = folder.join("jetstream");
    let mut text = format!(
        "listen: \"127.0.0.1:{port}\"\nmax_payload: 1MB\njetstream {{\n  store_dir: \"{}\"\n",
        store.display()
    );
    if sync == Sync::Always {
        text.push_str("  sync_interval: always\n");
    }
    text.push_str("}\n");
    if let Some(it) = certificate {
        let (chain, key) = (it.chain.display(), it.key.display());
        writeln!(
            text,
            "tls {{\n  cert_file: \"{chain}\"\n  key_file: \"{key}\"\n}}"
        )?;
    }
    let config = folder.join("nats.conf");
    fs::create_dir_all(folder)?;
    fs::write(&config, text)?;
    let mut command = Command::new(program);
    command.arg("-c").arg(&config);
    start(command, port)
}

/// Starts redis-server that syncs its file before each answer.
pub fn redis(program: &Path, folder: &Path, certificate: Option<&Certificate>) -> Result<Server> {
    let port = free_port()?;
    fs::create_dir_all(folder)?;
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--save", ""]);
    command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    command.arg("--dir").arg(folder);
    let number = port.to_string();
    if let Some(it) = certificate {
        command.args([
            "--port",
            "0",
            "--tls-auth-clients",
            "no",
            "--tls-port",
            &number,
        ]);
        command.arg("--tls-cert-file").arg(&it.chain);
        command.arg("--tls-key-file").arg(&it.key);
    } else {
        command.args(["--port", &number]);
    }
    start(command, port)
}

/// Starts this program again as a hub in `folder`.
pub fn hub(folder: &Path, port: u16) -> Result<Server> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("hub").arg(folder).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let mut line = String::new();
    let output = child.stdout.take().ok_or("no output")?;
    BufReader::new(output).read_line(&mut line)?;
    let server = Server { child, port };
    if line.trim() != "ready" {
        return Err(format!("the hub printed {line:?}").into());
    }
    Ok(server)
}

fn start(mut command: Command, port: u16) -> Result<Server> {
    command.stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Server {
        child: command.spawn()?,
        port,
    };
    let end = now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(_) => return Ok(server),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && now() < end => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(status) = server.child.try_wait()? {
            return Err(format!("{} ended: {status}", command.get_program().display()).into());
        }
        pause(Duration::from_millis(20));
    }
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "waits for another process")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
