//! The options with few values, of which a case has one each.

use std::fmt;

use arrow::datatypes::{DataType, Field, Schema};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Declares an option with few values. Each has the same name on the command line and in JSON.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$value_doc])* #[serde(rename = $text)] #[value(name = $text)] $value,)*
        }

        /// The first one.
        impl Default for $name {
            fn default() -> Self {
                [$(Self::$value),*][0]
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$value => $text,)*
                })
            }
        }
    };
}

choice! {
    /// The kind of measurement.
    Op {
        /// How fast batches arrive
        Get = "get",
        /// How fast batches that the client sends are taken
        Put = "put",
        /// How long a batch takes from one process to the other, within one stream
        Latency = "latency",
        /// How long the first batch of a new stream takes
        Connect = "connect",
        /// How many new streams of one batch can be opened in a second, beside Flight's DoGet
        Open = "open",
        /// How long the description of a published table takes
        Describe = "describe",
        /// What the server spends on a request that it refuses because it is busy, beside one that
        /// it serves
        Shed = "shed",
        /// What open streams cost while idle
        Idle = "idle",
        /// What batches with one row and many columns cost
        Metadata = "metadata",
        /// How fast the rows of a table that pass a filter come, filtered at the server, beside
        /// getting the whole table and filtering at the client
        Filter = "filter",
        /// The speed of the machine without libdipc: memory, sums, bare sockets
        Machine = "machine",
    }
}

choice! {
    /// The measured part of the machine.
    What {
        /// Copying from memory of a process into a mapped file in memory, by one thread
        Memcpy = "memcpy",
        /// The kernel copying from memory of a process into one buffer, like UCX's cma
        ProcessVmReadv = "process_vm_readv",
        /// Adding up numbers in memory of a process
        Sum = "sum",
        /// Adding up numbers of record batches from arrow-rs' C stream, within one process
        ArrowStream = "arrow_stream",
        /// Messages through a Unix socket, one system call each
        SocketWrite = "socket_write",
        /// A message there and back between two sleeping processes
        SocketRoundTrip = "socket_round_trip",
        /// Sealing records of TLS by AES-128-GCM, of the provider that libdipc has
        Aes128Gcm = "aes_128_gcm",
        /// A handshake of TLS 1.3 within one process
        TlsHandshake = "tls_handshake",
        /// A new connection of TCP to another process, and a message there and back
        TcpConnection = "tcp_connection",
        /// The same within TLS 1.3, by rustls alone, with a whole handshake
        TlsConnection = "tls_connection",
        /// The same with a handshake that resumes a session
        TlsResumption = "tls_resumption",
        /// Copying from pinned memory of the host into a GPU's
        PinnedToDevice = "pinned_to_device",
        /// Copying from a GPU's memory into pinned memory of the host
        DeviceToPinned = "device_to_pinned",
        /// Copying within a GPU's memory
        DeviceToDevice = "device_to_device",
    }
}

impl What {
    /// Whether it measures a GPU.
    pub fn is_gpus(self) -> bool {
        matches!(
            self,
            Self::PinnedToDevice | Self::DeviceToPinned | Self::DeviceToDevice
        )
    }
}

choice! {
    /// The transport between the processes.
    Scheme {
        Shm = "shm",
        Tcp = "tcp",
        Tls = "tls",
        Ucx = "ucx",
    }
}

choice! {
    /// The memory of the server's batches.
    Memory {
        /// In an arena, whose memory is lent
        Arena = "arena",
        /// In ordinary memory, which is copied or sent; on a GPU it can be lent, by a handle for
        /// each allocation
        Heap = "heap",
    }
}

choice! {
    /// The client's work on the values.
    Touch {
        /// Nothing: the batch is released at once (on a GPU, after a stream has waited for it)
        None = "none",
        /// Adds up all values, and checks the sum (on a GPU, after a download)
        Sum = "sum",
    }
}

choice! {
    /// How the client takes batches.
    Take {
        /// By a call that waits for the next batch
        Next = "next",
        /// By a call that does not wait, in an event loop with epoll
        TryNext = "try_next",
    }
}

choice! {
    /// How the server hands batches to libdipc.
    Source {
        /// As a published table
        Published = "published",
        /// By a provider, which is called for each batch
        Provider = "provider",
        /// By one thread of the program, which pushes to every stream that has room
        Push = "push",
    }
}

choice! {
    /// The type of the columns.
    Values {
        Int64 = "int64",
        /// A bit each, so that a batch has 64 times as many rows
        Bool = "bool",
    }
}

impl Values {
    /// How many values are in eight bytes, the unit in which batches are written and read.
    pub fn in_word(self) -> u64 {
        match self {
            Self::Int64 => 1,
            Self::Bool => 64,
        }
    }
}

/// The columns of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub columns: u32,
    pub values: Values,
}

impl Shape {
    /// Columns without nulls.
    pub fn schema(self) -> Schema {
        let kind = match self.values {
            Values::Int64 => DataType::Int64,
            Values::Bool => DataType::Boolean,
        };
        let field = |number| Field::new(format!("c{number}"), kind.clone(), false);
        Schema::new((0..self.columns).map(field).collect::<Vec<_>>())
    }
}

choice! {
    /// The level of validation.
    Level {
        Structure = "structure",
        Full = "full",
    }
}

choice! {
    /// How bodies travel.
    Body {
        Auto = "auto",
        Packed = "packed",
        Lent = "lent",
    }
}
