//! TLS by rustls: `https` without a proxy in front.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

/// Where a server's certificate lies.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// PEM: the certificate, then those that vouch for it.
    pub certificate: PathBuf,
    /// PEM: its private key.
    pub key: PathBuf,
}

/// Why TLS can't be had.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read, or holds something else.
    #[error("{}: {why}", .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// Certificate and key do not belong together, or are of a kind that is not supported.
    #[error("the certificate and its key can't be used: {0}")]
    Pair(#[from] tokio_rustls::rustls::Error),
}

/// A file's bytes, if they are as few as those of certificates are: a device has no end.
fn bounded(file: &Path) -> Result<Vec<u8>, String> {
    const MOST: u64 = 1 << 20;
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(|e| e.to_string())?;
    let read = opened.take(MOST + 1).read_to_end(&mut bytes);
    read.map_err(|e| e.to_string())?;
    match bytes.len() as u64 > MOST {
        true => Err(format!(
            "it is longer than {MOST} bytes: no file of certificates or keys is"
        )),
        false => Ok(bytes),
    }
}

/// What handshakes are done with.
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn read(files: &TlsFiles) -> Result<Tls, TlsError> {
        let refuse = |file: &Path, why: String| TlsError::File {
            file: file.to_owned(),
            why,
        };
        let text = |file: &Path| bounded(file).map_err(|why| refuse(file, why));
        let certificate = text(&files.certificate)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
        let chain = chain.map_err(|e| refuse(&files.certificate, e.to_string()))?;
        if chain.is_empty() {
            let why = "holds no certificate (PEM: -----BEGIN CERTIFICATE-----)";
            return Err(refuse(&files.certificate, why.to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(&text(&files.key)?)
            .map_err(|e| refuse(&files.key, e.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls(TlsAcceptor::from(Arc::new(config))))
    }

    /// The handshake.
    ///
    /// # Errors
    /// The client's fault mostly.
    pub async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}
