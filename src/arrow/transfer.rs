//! Moves of streams between devices and the host within one process, by the encoder and the decoder
//! without a transport.

use std::any::Any;
use std::sync::Arc;

use crate::arrow::decode::{DecodeOptions, Decoder, Level, ReceivedBody};
use crate::arrow::stream::{ArrayReader, export_device_stream, export_stream, into_reader};
use crate::arrow::{EncodeOptions, EncodedMessage, EncodedMessages, Encoder};
use crate::arrow::{OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, OwnedStream};
use crate::device::gpu::{Gpu, GpuAllocator, GpuDriver};
use crate::device::{DeviceKind, Target};
use crate::error::{Error, Result};
use crate::proto::{Header, HeaderKind};

impl EncodedMessage {
    /// The body as this process receives it, at its present address. `shared`: another owner may
    /// still write to it.
    pub fn received(&self, shared: bool) -> ReceivedBody {
        let (buffers, owner) = (self.buffers.to_vec(), self.owner.clone().shared());
        match self.owner.gpu() {
            // SAFETY: the encoder found the buffers in the device's memory, and the owner keeps
            // them. They are readable after the event `ready`, and nobody else writes to them.
            Some((stream, ready)) => unsafe {
                let (device, ready) = (Arc::clone(stream.device()), Arc::clone(ready));
                ReceivedBody::on_gpu(buffers, owner, shared, device, Some(ready))
            },
            // SAFETY: the processor can read the buffers, and the owner keeps them. Nobody else
            // writes to them.
            None => unsafe { ReceivedBody::new(buffers, owner, shared) },
        }
    }
}

/// Fails if this machine cannot move arrays of a device type to `target`.
///
/// # Errors
///
/// `Unsupported` if this process cannot read the memory, or there is no driver; `InvalidArgument`
/// if the GPU does not exist.
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

/// Moves a stream: copies each array to `target` when the consumer requests it, unless it is
/// already there. An array on a GPU may have an event that its readers must wait for. The events of
/// the source are waited for.
///
/// # Errors
///
/// As [`ensure_movable`]. The stream reports errors of its source.
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
        destination: Destination::Target(target),
        device_type,
        codec: None,
    }))
}

/// Converts a device stream into a host stream. Arrays on a GPU and in other memory of CUDA are
/// copied to the host when the consumer requests them.
///
/// # Errors
///
/// As [`ensure_movable`].
pub fn to_host(stream: OwnedDeviceStream) -> Result<OwnedStream> {
    export_stream(move_to(into_reader(stream), Target::Host)?)
}

/// Converts a device stream into a stream with arrays at `target`. Arrays are copied when the
/// consumer requests them.
///
/// # Errors
///
/// As [`ensure_movable`].
pub fn to_target(stream: OwnedDeviceStream, target: Target) -> Result<OwnedDeviceStream> {
    Ok(export_device_stream(move_to(into_reader(stream), target)?))
}

/// [`move_to`] for the GPU of `room`, which allocates the memory. Memory of an arena can be lent
/// without a copy. Arrays on that GPU are not copied.
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
        destination: Destination::Allocator(room),
        device_type: DeviceKind::CUDA,
        codec: None,
    }))
}

/// The place that arrays are moved to.
enum Destination {
    Target(Target),
    Allocator(Arc<dyn GpuAllocator>),
}

/// A stream that moves the arrays of `reader`.
struct Transfer {
    reader: Box<dyn ArrayReader>,
    destination: Destination,
    device_type: DeviceKind,
    /// `None` until the first array, because the source may not have its schema earlier.
    codec: Option<(Encoder, Decoder)>,
}

impl Transfer {
    fn codec(&mut self) -> Result<&mut (Encoder, Decoder)> {
        if self.codec.is_none() {
            let encoder = Encoder::new(&self.reader.schema()?, EncodeOptions::default())?;
            let header = Header::parse(encoder.schema_header())?;
            // No check of the values: they come from the host program, not from a peer.
            let options = DecodeOptions {
                level: Level::Structure,
                ..DecodeOptions::default()
            };
            let decoder = match &self.destination {
                Destination::Target(target) => Decoder::with_target(&header, options, *target)?,
                Destination::Allocator(room) => {
                    Decoder::with_room(&header, options, Arc::clone(room))?
                }
            };
            self.codec = Some((encoder, decoder));
        }
        self.codec
            .as_mut()
            .ok_or_else(|| Error::invalid_argument("the stream has no schema"))
    }

    fn decode(decoder: &mut Decoder, messages: EncodedMessages) -> Result<OwnedDeviceArray> {
        let mut array = None;
        for message in messages {
            let header = Header::parse(&message.header)?;
            let body = message.received(false);
            // The decoder holds the parts that it still needs.
            drop(message);
            if header.kind() == HeaderKind::Dictionary {
                decoder.add_dictionary(&header, &body)?;
            } else {
                array = Some(decoder.batch(&header, &body)?.array);
            }
        }
        array.ok_or_else(|| Error::invalid_data("the encoder made no batch of the array"))
    }
}

impl ArrayReader for Transfer {
    fn schema(&mut self) -> Result<OwnedSchema> {
        self.reader.schema()
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        self.codec()?;
        let Some(array) = self.reader.next()? else {
            return Ok(None);
        };
        let (encoder, decoder) = self.codec()?;
        // The message has the array's metadata, and the decoder annotates the new array with them.
        let messages = encoder.encode(array, None)?;
        Self::decode(decoder, messages).map(Some)
    }

    fn device_type(&self) -> i32 {
        self.device_type.0
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        self.reader.as_any()
    }
}
