/// The server's side of one connection, without the socket: bytes come in, calls and ready-made replies go out.
///
/// How a server uses it:
///
/// 1. On connect: make one `ControlConnection`, keep one output buffer `[UInt8]` beside it.
/// 2. While `mayRead` is true and the socket is readable: read at most 16 KiB and give it to `receive`.
/// 3. Unless a call of this connection is still being answered, take `next()`:
///    * `.call`: check the peer's rights (`request.changesSomething`), do it, and append the answer to the output by one
///      of the `Reply` functions (none at all if `oneway`). Varlink answers in order, so take the next only afterwards.
///      `list` is a stream: chunks of at most `Reply.chunk` services, `continues` true on all but the last. Without
///      `more`, more than one chunk is `ControlError.expectedMore`. Encode the next chunk when the output is below your
///      bound, so that a client that does not read costs nothing; close one that does not read for too long.
///    * `.reply`: append the bytes to the output; nothing else is to be done (introspection, a fault of the client).
///    * `.close`: append the bytes, send what can be sent, close. Only this connection is concerned.
/// 4. `nil`: wait for more bytes. End of file with nothing being answered: close. An order already begun stands;
///    tell the fleet to `abandon` its request.
package struct ControlConnection: Sendable {
  package enum Input: Hashable, Sendable {
    case call(ControlCall)
    case reply([UInt8])
    case close([UInt8])
  }

  /// Bytes of one request; the longest honest one (a list of 900 names) is shorter.
  package static let requestLimit = 65_536

  private var frames = FrameBuffer(limit: Self.requestLimit)
  private var broken = false

  package init() {}

  /// False while enough requests wait; read on when they have been answered.
  package var mayRead: Bool { !broken && frames.count <= Self.requestLimit }

  /// A request has begun and is not answered yet.
  package var hasBytes: Bool { !broken && frames.count > 0 }

  /// What has been received and not been taken by `next`: given to `receive` of a new connection, that one goes on.
  /// Nil: the connection is to be closed when its output has been sent.
  package var unread: [UInt8]? { broken ? nil : Array(frames.rest) }

  package mutating func receive(_ bytes: UnsafeRawBufferPointer) {
    if !broken { frames.append(bytes) }
  }

  package mutating func next() -> Input? {
    if broken { return nil }
    let message: DecodedMessage?
    do throws(FrameBuffer.Fault) {
      message = try frames.next(decodeMessage)
    } catch {
      broken = true
      switch error {
      case .tooLong(let limit):
        return .close(Reply.error(.invalidParameter("message longer than \(limit) bytes")))
      }
    }
    switch message {
    case nil: return nil
    case .call(let call)?: return .call(call)
    case .introspection(let reply)?: return .reply(reply)
    case .refused(let error, let oneway)?: return .reply(oneway ? [] : Reply.error(error))
    case .notVarlink(let reason)?:
      broken = true
      return .close(Reply.error(.invalidParameter(reason)))
    }
  }
}
