//! Streams moved between devices and the host, within one process: by the encoder and the decoder,
//! without a wire between them.

use std::sync::Arc;

use crate::arrow::decode::{DecodeOptions, Decoder, Level, ReceivedBody};
use crate::arrow::stream::{ArrayReader, DeviceStreamReader, export_device_stream, export_stream};
use crate::arrow::{EncodeOptions, EncodedMessage, EncodedMessages, Encoder};
use crate::arrow::{OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, OwnedStream};
use crate::device::gpu::{Gpu, GpuAllocator, GpuDriver};
use crate::device::{DeviceKind, Target};
use crate::error::{Error, Result};
use crate::proto::{Header, HeaderKind};

impl EncodedMessage {
    /// The body as it is received in this process, where it lies. `shared`: somebody may still
    /// write to it.
    pub fn received(&self, shared: bool) -> ReceivedBody {
        let (buffers, owner) = (self.buffers.to_vec(), self.owner.clone().shared());
        match self.owner.on_gpu() {
            // SAFETY: the encoder has found the buffers in the device's memory, where the owner
            // keeps them; they may be read behind that event; nobody else writes to them.
            Some((device, ready)) => unsafe {
                ReceivedBody::on_gpu(buffers, owner, shared, device, Some(ready))
            },
            // SAFETY: the buffers lie where the processor reads them, and the owner keeps them;
            // nobody else writes to them.
            None => unsafe { ReceivedBody::new(buffers, owner, shared) },
        }
    }
}

/// Whether arrays of a device type can be moved to `target`, with the devices of this machine.
///
/// # Errors
///
/// `Unsupported` where they cannot be read, or there is no driver; `InvalidArgument` where there is
/// no such GPU.
pub fn ensure_movable(device_type: i32, target: Target) -> Result<()> {
    let kind = DeviceKind(device_type);
    match kind {
        DeviceKind::CUDA | DeviceKind::CUDA_HOST | DeviceKind::CUDA_MANAGED => {
            let readable = GpuDriver::get().map(drop);
            readable.map_err(|error| {
                error.context(format!(
                    "memory of Arrow device type {device_type} cannot be read here"
                ))
            })?;
        }
        _ => kind.ensure_readable()?,
    }
    match target {
        Target::Cuda(ordinal) => Gpu::get(ordinal.into()).map(drop),
        Target::Host | Target::AsSent => Ok(()),
    }
}

/// Moves a stream: its arrays are copied to `target` as they are asked for, where they do not lie
/// there already. An array on a GPU may carry an event that its readers wait for; those of the
/// source are waited for.
///
/// # Errors
///
/// As [`ensure_movable`]. What is wrong with the source is told by the stream.
pub fn move_to(reader: Box<dyn ArrayReader>, target: Target) -> Result<Box<dyn ArrayReader>> {
    let kind = DeviceKind(reader.device_type());
    ensure_movable(kind.0, target)?;
    let device_type = match target {
        Target::AsSent => return Ok(reader),
        Target::Host if kind == DeviceKind::CPU => return Ok(reader),
        Target::Host => DeviceKind::CPU,
        Target::Cuda(_) => DeviceKind::CUDA,
    };
    Ok(Box::new(Transfer {
        reader,
        to: To::Target(target),
        device_type,
        machines: None,
    }))
}

/// A device stream as a host stream. Arrays on a GPU, and in memory that CUDA has to do with, are
/// copied to the host as they are asked for.
///
/// # Errors
///
/// As [`ensure_movable`].
pub fn to_host(stream: OwnedDeviceStream) -> Result<OwnedStream> {
    let reader = Box::new(DeviceStreamReader::new(stream));
    export_stream(move_to(reader, Target::Host)?)
}

/// A device stream as one whose arrays are at `target`, to which they are copied as they are asked
/// for.
///
/// # Errors
///
/// As [`ensure_movable`].
pub fn to_target(stream: OwnedDeviceStream, target: Target) -> Result<OwnedDeviceStream> {
    let reader = Box::new(DeviceStreamReader::new(stream));
    Ok(export_device_stream(move_to(reader, target)?))
}

/// [`move_to`] for the GPU of `room`, which gives the memory: that of an arena is lent without a
/// copy. Arrays that lie on that GPU already stay where they are.
///
/// # Errors
///
/// As [`move_to`].
pub fn move_into(
    reader: Box<dyn ArrayReader>,
    room: Arc<dyn GpuAllocator>,
) -> Result<Box<dyn ArrayReader>> {
    ensure_movable(reader.device_type(), Target::Cuda(room.device().ordinal()))?;
    Ok(Box::new(Transfer {
        reader,
        to: To::Allocator(room),
        device_type: DeviceKind::CUDA,
        machines: None,
    }))
}

/// Where arrays are moved to.
enum To {
    Target(Target),
    Allocator(Arc<dyn GpuAllocator>),
}

/// A stream whose arrays are moved.
struct Transfer {
    reader: Box<dyn ArrayReader>,
    to: To,
    device_type: DeviceKind,
    /// From the first array on: before, its schema may not be there.
    machines: Option<(Encoder, Decoder)>,
}

impl Transfer {
    fn machines(&mut self) -> Result<&mut (Encoder, Decoder)> {
        if self.machines.is_none() {
            let encoder = Encoder::new(&self.reader.schema()?, EncodeOptions::default())?;
            let header = Header::parse(encoder.schema_header())?;
            // The values are the host's own, and no peer's.
            let options = DecodeOptions {
                level: Level::Structure,
                ..DecodeOptions::default()
            };
            let decoder = match &self.to {
                To::Target(target) => Decoder::with_target(&header, options, *target)?,
                To::Allocator(room) => Decoder::with_room(&header, options, Arc::clone(room))?,
            };
            self.machines = Some((encoder, decoder));
        }
        self.machines
            .as_mut()
            .ok_or_else(|| Error::invalid_argument("the stream has no schema"))
    }

    fn decode(decoder: &mut Decoder, messages: EncodedMessages) -> Result<OwnedDeviceArray> {
        let mut array = None;
        for message in messages {
            let header = Header::parse(&message.header)?;
            let body = message.received(false);
            // The decoder holds what it still needs.
            drop(message);
            if header.kind() == HeaderKind::Dictionary {
                decoder.add_dictionary(&header, &body)?;
            } else {
                array = Some(decoder.batch(&header, &body)?.array);
            }
        }
        array.ok_or_else(|| Error::invalid_data("the array became no batch"))
    }
}

impl ArrayReader for Transfer {
    fn schema(&mut self) -> Result<OwnedSchema> {
        self.reader.schema()
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        self.machines()?;
        let Some(array) = self.reader.next()? else {
            return Ok(None);
        };
        let (encoder, decoder) = self.machines()?;
        let messages = encoder.encode(array, None)?;
        Self::decode(decoder, messages).map(Some)
    }

    fn device_type(&self) -> i32 {
        self.device_type.0
    }
}
